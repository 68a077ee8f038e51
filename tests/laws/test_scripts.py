"""Every script matches its header, Python and Lua use the same names, and all scripts obey the laws."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import schedq
from schedq.model.settings import Settings
from schedq.transitions import scripts
from schedq.transitions.scripts import COMMON, Binding
from tests.cases import for_each
from tests.requests_of_all_kinds import OPERATIONS
from tests.state import LAYOUT

FILES = sorted(Path(schedq.__file__).parent.rglob("*.lua"))
SCRIPTS = [path.stem for path in FILES if path.parent.name != "shared"]
FRAGMENTS = [f"shared/{path.stem}" for path in FILES if path.parent.name == "shared"]
NAMES = [*SCRIPTS, *FRAGMENTS]
TYPES = {"source": "list or zset", "this_worker": "hash", "schedule": "hash", "slots": "list"} | LAYOUT
TYPES |= dict.fromkeys(("gate_keys", "group_keys", "wakes", "worker_keys"), "prefix")
QUEUE = Settings("mail")
USED = re.compile(r"'(?:[^'\\]|\\.)*'|(?<![\w.:])([A-Za-z_]\w*)\b(?!\s*=[^=])")
DECLARED = re.compile(r"\bfunction(?: (\w+))?\(([\w, ]*)|\b(?:local|for) (?!function\b)([\w, ]+)")
LUA = frozenset(
    re.findall(
        r"\w+",
        "and break do else elseif end false for function if in local nil not or repeat return then true until while"
        " ARGV KEYS cjson ipairs math next pairs pcall redis select string table tonumber tostring type unpack",
    )
)
MINE = """--[[
Do something.

KEYS  pending (list), stats (hash)
ARGV  jobs, clock
      limit (number): most jobs
      is_new (flag): whether they are new
      ids...: of the jobs
Returns  1
]]
--@include clock
return {pending, stats, jobs, now, limit, is_new, ids_start}
"""


def body(name: str) -> str:
    """The script without its header and its comments."""
    text = re.sub(r"\A--\[\[.*?\]\]\n", "", scripts.text(name), flags=re.DOTALL)
    return re.sub(r"--(?!@include).*", "", text)


def misnamed(name: str) -> tuple[set[str], set[str]]:
    """The undeclared names that a script uses, and the names of its header that it does not use."""
    header = scripts.header(name)
    given = {each.local for each in (*header.keys, *header.args, *header.rare)} - {"prefix"}
    source = scripts.script(name, scripts.text(name)).source
    used = {found for found in USED.findall(source) if found} - LUA
    declared = {name for found in DECLARED.findall(source) for part in found for name in re.findall(r"\w+", part)}
    return used - declared - given, given - used


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch):
    """Have the loader find `MINE`, changed, under the name "mine"."""
    found = scripts.text

    def store(old: str = "", new: str = "") -> None:
        assert old in MINE
        monkeypatch.setattr(scripts, "text", lambda name: MINE.replace(old, new) if name == "mine" else found(name))
        scripts.load.cache_clear()
        scripts.header.cache_clear()

    yield store
    scripts.load.cache_clear()
    scripts.header.cache_clear()


@for_each(SCRIPTS)
def test_a_header_describes_its_script_in_a_sentence(name: str):
    found = re.match(r"--\[\[\n(.+?)\n\nKEYS  .+?\nReturns  \S", scripts.text(name), re.DOTALL)

    assert found
    assert found[1][0].isupper()
    assert found[1].endswith((".", "?"))


@for_each(SCRIPTS)
def test_keys_have_the_type_of_the_layout(name: str):
    header = scripts.header(name)
    assert {key.name: key.type for key in (*header.keys, *header.rare)}.items() <= TYPES.items()


@for_each([name for name in SCRIPTS if scripts.header(name).rare])
def test_rare_keys_are_built_wherever_they_are_used(name: str):
    """Not in texts, nor where a local variable has the name. The loader's own way is quick, but not exact."""
    header = scripts.header(name)
    names = "|".join(each.name for each in header.rare)
    source = scripts.script(name, scripts.text(name)).source

    def built(found: re.Match[str]) -> str:
        return f"(prefix .. '{getattr(QUEUE.keys, found[1])[len(QUEUE.keys.prefix) :]}')" if found[1] else found[0]

    exact = re.sub(rf"'(?:[^'\\]|\\.)*'|(?<![\w.:])({names})\b(?!\s*=[^=])", built, source)
    assert header.with_rare_keys(source) == exact
    assert scripts.load(name).source == header.to_lua() + exact
    declared = {name for found in DECLARED.findall(source) for part in found for name in re.findall(r"\w+", part)}
    assert not declared & {each.name for each in header.rare}


@for_each(SCRIPTS)
def test_arguments_of_the_queue_are_read_the_same_everywhere(name: str):
    numbers = {"visibility_ms", "max_attempts", "max_pending", "min_keep_ms", "silence_ms"}
    numbers |= {"completed_cap", "completed_history", "failed_history"}
    for argument in scripts.header(name).args:
        if argument.name in COMMON:
            assert argument.type == ("number" if argument.name in numbers else None), argument.name


@for_each(SCRIPTS)
def test_a_script_is_loaded_and_sent(name: str):
    sent = [operation for operation in OPERATIONS if operation.script is scripts.load(name)]

    assert sent, f"no operation uses {name}.lua"


@for_each(NAMES)
def test_no_script_counts_keys_or_arguments(name: str):
    """All have names; only a repeating argument is read by its index."""
    assert not re.search(r"KEYS|ARGV\[\d", body(name))


def test_a_script_is_given_its_names_by_the_loader(stored):
    stored()

    assert scripts.load("mine").source.splitlines()[:2] == [
        "local pending, stats = KEYS[1], KEYS[2]",
        "local jobs, clock, limit, is_new, ids_start = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1', 5",
    ]


def test_a_key_that_few_calls_touch_is_built_where_it_is_used(stored):
    stored(
        "KEYS  pending (list), stats (hash)\nARGV  jobs,",
        "KEYS  pending (list)\nRARE  stats (hash)\nARGV  prefix, jobs,",
    )

    script, keys, args = Binding("mine", "ids", "limit", "is_new")(Settings("mail"), is_new=1, ids=["a", "b"], limit=7)

    assert script.source.endswith("return {pending, (prefix .. 'stats'), jobs, now, limit, is_new, ids_start}")
    assert keys == ("queue:mail:pending",)
    assert args == ("queue:mail:", "queue:mail:job:", "", 7, 1, "a", "b")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("stats (hash)", "stats (hash)\nRARE  gates (hash)", "mine.lua does not use all of its header: gates"),
        ("stats (hash)", "stats (hash)\nRARE  pending (list)", "mine.lua names pending twice"),
        ("pending (list)", "paused (string), pending (list)", "mine.lua does not use all of its header: paused"),
        ("stats (hash)", "pending (list)", "mine.lua names pending twice"),
        ("is_new (flag)", "jobs", "mine.lua names jobs twice"),
        ("limit (number)", "limit...", "mine.lua: only the last argument may repeat"),
        ("(flag)", "(bool)", "mine.lua: an argument is text, number or flag; is_new is 'bool'"),
        ("stats (hash)", "3 stats (hash)", "mine.lua: '3 stats (hash)' is not a name with a type"),
        ("KEYS  ", "KEYS: ", "mine.lua has no header of the form: what it does, KEYS, ARGV, Returns"),
    ],
)
def test_a_script_that_does_not_keep_to_its_header_is_not_loaded(stored, old: str, new: str, why: str):
    stored(old, new)

    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        scripts.load("mine")


@for_each(SCRIPTS)
def test_a_script_uses_all_its_arguments_and_nothing_undeclared(name: str):
    assert misnamed(name) == (set(), set())


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", (set(), set())),
        ("pending (list), ", "", ({"pending"}, set())),
        ("stats (hash)", "wake (zset), stats (hash)", (set(), {"wake"})),
        (" ids_start", " ids", ({"ids"}, {"ids_start"})),
        ("jobs, clock\n", "jobs, log\n", ({"clock"}, {"log"})),
        ("--@include clock\n", "", ({"now"}, {"clock"})),
    ],
)
def test_a_name_that_is_not_in_both_header_and_text_is_noticed(stored, old: str, new: str, expected):
    stored(old, new)

    assert misnamed("mine") == expected


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("limit", "is_new"), "the binding of mine.lua does not give ids"),
        (("limit", "is_new", "ids", "worker"), "the binding of mine.lua gives worker, which the header does not name"),
        (("limit", "is_new", "ids", "limit"), "the binding of mine.lua names limit twice"),
    ],
)
def test_a_binding_of_other_names_fails_when_the_script_is_loaded(stored, names: tuple[str, ...], why: str):
    stored()

    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        Binding("mine", *names)(Settings("mail"), limit=1, is_new=1, ids=[])


@pytest.mark.parametrize("given", [{"limit": 1, "is_new": 1}, {"limit": 1, "is_new": 1, "ids": [], "jobs": "x"}])
def test_a_request_with_other_names_than_its_binding_is_not_made(stored, given):
    stored()

    with pytest.raises(TypeError, match=r"^mine.lua takes limit, is_new, ids; given: "):
        Binding("mine", "limit", "is_new", "ids")(Settings("mail"), **given)


def test_a_request_has_its_keys_and_arguments_in_the_order_of_the_header(stored):
    stored()

    script, keys, args = Binding("mine", "ids", "limit", "is_new")(QUEUE, is_new=1, ids=["a", "b"], limit=7)

    assert script is scripts.load("mine")
    assert keys == ("queue:mail:pending", "queue:mail:stats")
    assert args == ("queue:mail:job:", "", 7, 1, "a", "b")


def test_a_request_reads_the_clock_each_time(stored):
    stored()
    instant = 1.0
    queue, binding = Settings("mail", clock=lambda: instant), Binding("mine", "limit", "is_new", "ids")

    first = binding(queue, limit=1, is_new=0, ids=())
    instant = 2.0

    assert [first[2][1], binding(queue, limit=1, is_new=0, ids=())[2][1]] == ["1000", "2000"]


# -- laws


@for_each(NAMES)
def test_no_script_does_what_grows_with_the_backlog(name: str):
    text = body(name)

    assert not re.search(r"'(KEYS|SCAN|SMEMBERS|HKEYS|HVALS|SORT|FLUSHALL|FLUSHDB|LINSERT)'", text)
    assert not re.search(r"'LRANGE', \w+, 0, -1", text)
    assert not re.search(r"'ZRANGE', \w+, 0, -1", text)
    assert all("LIMIT" in line for line in text.splitlines() if "'ZRANGEBYSCORE'" in line)
    # Whole hashes: the running totals and the settings, whose fields are schedq's, one job at a time, the limits of
    # gates, and figures of tasks, which have at most 1,000 fields.
    hashes = re.findall(r"'HGETALL', ([\w. ]+)", text)
    assert set(hashes) <= {"stats", "settings", "jobs .. id", "gates", "task_stats"}
    assert not re.search(r"while true|repeat\b", text), "a loop without a limit"


_DECODED = {
    "shared/task_of": ["payload"],
    "claim": ["only"],
    "shared/cancel": ["waits"],
    "shared/gate_facts": ["text"],
    "define_gate": ["text", "limits", "limits"],
    "enqueue_unique": ["gate_limits"],
    "fill_group": ["definition", "gate_limits"],
    "shared/group_next": ["options"],
    "settle": ["text"],
    "send": ["text", "job"],
}
"""What scripts decode: names of tasks, limits of gates, fields of jobs and what runs wait for, apart from the one
payload."""


@for_each(NAMES)
def test_no_script_reads_or_writes_a_payload_as_json(name: str):
    """cjson changes what it decodes, so payloads stay opaque. Only the task's name is read from one, in one place."""
    text = body(name)

    decoded = re.findall(r"cjson\.decode\W+(\w+)", text)
    assert decoded == _DECODED.get(name, [])
    assert not re.search(r"cjson\.encode\([^)]*payload", text)


@for_each(NAMES)
def test_the_time_is_read_in_one_place(name: str):
    assert ("'TIME'" in body(name)) == (name == "shared/clock")
    assert "testclock" not in body(name)
    assert "os." not in body(name)


@for_each(SCRIPTS)
def test_time_is_read_once_and_only_if_the_caller_may_give_one(name: str):
    includes = re.findall(r"^ *--@include (\w+)$", scripts.text(name), re.MULTILINE)

    assert ("clock" in includes) == ("clock" in scripts.header(name).names)
    assert len(includes) == len(set(includes))


@for_each(NAMES)
def test_no_script_is_random_or_blocks(name: str):
    assert "math.random" not in body(name)
    assert not re.search(r"'(B[LRZ]\w+|WAIT|SUBSCRIBE|MULTI)'", body(name))


@for_each(NAMES)
def test_keys_are_declared_or_built_from_the_jobs_prefix(name: str):
    """A call's key is a local name, a job's or schedule's key, or an element of KEYS, never a literal."""
    for call in re.findall(r"redis\.p?call\('[A-Z]+', (?:'GROUPS', )?([^,)]+)", body(name)):
        assert not call.startswith("'"), f"{call} is built in the script"
        if ".." in call:
            assert call.strip().startswith(("jobs .. ", "definitions .. ")), call


@for_each(SCRIPTS)
def test_scripts_are_sent_without_comments(name: str):
    script = scripts.load(name)

    assert "--" not in script.source
    assert "@include" not in script.source
    assert len(script.sha) == 40
    assert script is scripts.load(name)


def test_a_comment_is_distinguished_from_text_that_looks_like_one():
    made = scripts.script("one", "--[[ what\nit is ]]\nlocal a = 1 -- why\n--@include clock\n  return a\n")

    assert made.source.startswith("local a = 1\nlocal redis_time\n")
    assert made.source.endswith("\nreturn a")
