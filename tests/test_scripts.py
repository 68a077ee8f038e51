"""Every script says what it is, which keys and arguments it takes and what it answers; and keeps to the laws."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from schedq import lua
from schedq.settings import Settings
from tests.requests_of_all_kinds import OPERATIONS
from tests.state import LAYOUT

NAMES = sorted(path.name.removesuffix(".lua") for path in files("schedq.lua").iterdir() if path.name.endswith(".lua"))
SCRIPTS = [name for name in NAMES if not name.startswith("_")]
FRAGMENTS = [name for name in NAMES if name.startswith("_")]
HEADER = re.compile(
    r"\A--\[\[\n(?P<what>.+?)\n\nKEYS {2}(?P<keys>.+?)\nARGV {2}(?P<argv>.+?)\nReturns {2}(?P<returns>.+?)\n\]\]\n",
    re.DOTALL,
)
TYPES = {"the place": "list or zset", "this worker": "hash", "this schedule": "hash", "its slots": "list"} | LAYOUT
EXPLAINED_BY_USE = {"theirs", "order", "me", "before", "offset", "kind", "mode", "ms", "shorten"}


def body(name: str) -> str:
    """The script without its header and its comments."""
    text = re.sub(r"\A--\[\[.*?\]\]\n", "", lua.text(name), flags=re.DOTALL)
    return re.sub(r"--(?!@include).*", "", text)


def header(name: str) -> re.Match[str]:
    found = HEADER.match(lua.text(name))
    assert found, f"{name}.lua has no header of the form: what, KEYS, ARGV, Returns"
    return found


def numbered(text: str) -> list[tuple[str, str]]:
    """`1 a (list)  2 b` as [("1", "a (list)"), ("2", "b")]; `...` ends a number that goes on."""
    parts = re.split(r"(?:^|\s{2,})(\d+(?:\.\.\.)?) ", text)
    return [(number, " ".join(what.split())) for number, what in zip(parts[1::2], parts[2::2], strict=True)]


def keys_of(name: str) -> list[tuple[str, str]]:
    return numbered(header(name)["keys"])


def arguments_of(name: str) -> list[tuple[str, str]]:
    text = header(name)["argv"]
    return [] if text == "none" else numbered(text)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_header_says_what_it_does_in_a_sentence(name: str):
    what = header(name)["what"]

    assert what[0].isupper()
    assert what.endswith((".", "?"))
    assert header(name)["returns"].strip()


@pytest.mark.parametrize("name", SCRIPTS)
def test_keys_are_numbered_from_one_and_have_a_type(name: str):
    keys = keys_of(name)

    assert [number for number, _ in keys] == [str(n + 1) for n in range(len(keys))]
    for _, what in keys:
        word, _, kind = what.partition(" (")
        assert kind.removesuffix(")") == TYPES[word]


@pytest.mark.parametrize("name", SCRIPTS)
def test_arguments_are_numbered_from_one_and_only_the_last_repeats(name: str):
    numbers = [number for number, _ in arguments_of(name)]

    assert [number.removesuffix("...") for number in numbers] == [str(n + 1) for n in range(len(numbers))]
    assert not any(number.endswith("...") for number in numbers[:-1])


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_key_that_the_header_names_is_named_so_in_the_body(name: str):
    """`1 pending (list)` is `local pending = KEYS[1]`."""
    named = assigned(name, "KEYS")
    for number, what in keys_of(name):
        word = re.sub(r" \(.*", "", what)
        if int(number) in named:
            assert named[int(number)] in (word.replace(" ", "_"), *word.split(), "me", "place"), (number, what, named)
        else:
            assert f"KEYS[{number}]" in body(name) or "KEYS[i]" in body(name), f"key {number} is not used"
    assert all(int(n) <= len(keys_of(name)) for n in re.findall(r"KEYS\[(\d+)\]", body(name)))


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_argument_that_the_header_names_is_read(name: str):
    arguments = arguments_of(name)
    fixed = [int(number) for number, _ in arguments if not number.endswith("...")]
    used = {int(n) for n in re.findall(r"ARGV\[(\d+)\]", body(name))}

    assert used == set(fixed)
    if arguments and arguments[-1][0].endswith("..."):
        first = arguments[-1][0].removesuffix("...")
        starts = rf"for i = {first},|\.\.\. = {first}|i = .*{first}$|unpack\(ARGV(, {first})?\)"
        assert re.search(starts, body(name), re.MULTILINE), f"nothing starts at argument {first}"


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_argument_has_a_local_name_that_its_description_explains(name: str):
    named = assigned(name, "ARGV")
    for number, what in arguments_of(name):
        if not number.endswith("..."):
            local, words = named[int(number)], re.findall(r"[a-z]+", what.lower().replace("_", " "))
            assert local in EXPLAINED_BY_USE or set(local.split("_")) & set(words), (number, what, local)


def assigned(name: str, array: str) -> dict[int, str]:
    """Which local name each element of KEYS or ARGV gets."""
    found = {}
    for names, values in re.findall(
        r"^local ([\w, ]+) =\s*((?:[^\n]*(?:KEYS|ARGV)\[[^\n]*))$", body(name), re.MULTILINE
    ):
        for local, value in zip(names.split(", "), re.split(r", (?=\w+[\[(])", values), strict=False):
            if number := re.search(rf"{array}\[(\d+)\]", value):
                found[int(number[1])] = local
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_requests_send_as_many_keys_and_arguments_as_the_header_says(name: str):
    sent = [operation for operation in OPERATIONS if operation.script and operation.script.name == name]
    arguments = arguments_of(name)

    assert sent, f"no operation uses {name}.lua"
    for operation in sent:
        assert len(operation.keys) == len(keys_of(name))
        fixed = [number for number, _ in arguments if not number.endswith("...")]
        if len(fixed) == len(arguments):
            assert len(operation.args) == len(arguments)
        else:
            assert len(operation.args) >= len(fixed)


@pytest.mark.parametrize("name", SCRIPTS)
def test_requests_send_the_keys_that_the_header_names(name: str):
    queue = Settings("mail")
    for operation in OPERATIONS:
        if operation.script and operation.script.name == name:
            for key, (_, what) in zip(operation.keys, keys_of(name), strict=True):
                word = what.partition(" (")[0]
                suffix = key.removeprefix(queue.keys.prefix)
                assert suffix == word or word in ("the place", "this worker", "this schedule", "its slots"), (key, what)


# -- laws


@pytest.mark.parametrize("name", NAMES)
def test_no_script_does_what_grows_with_the_backlog(name: str):
    text = body(name)

    assert not re.search(r"'(KEYS|SCAN|SMEMBERS|HKEYS|HVALS|SORT|FLUSHALL|FLUSHDB|LINSERT)'", text)
    assert not re.search(r"'LRANGE', \w+, 0, -1", text)
    assert not re.search(r"'ZRANGE', \w+, 0, -1", text)
    assert all("LIMIT" in line for line in text.splitlines() if "'ZRANGEBYSCORE'" in line)
    # Whole hashes: the running totals, whose fields are ours, and one job at a time.
    hashes = re.findall(r"'HGETALL', ([\w. ]+)", text)
    assert set(hashes) <= {"stats", "jobs .. id"}
    assert not re.search(r"while true|repeat\b", text), "a loop without a limit"


@pytest.mark.parametrize("name", NAMES)
def test_no_script_reads_or_writes_a_payload_as_json(name: str):
    """cjson changes what it decodes; payloads are opaque."""
    text = body(name)

    assert "cjson.decode" not in text
    assert not re.search(r"cjson\.encode\([^)]*payload", text)


@pytest.mark.parametrize("name", NAMES)
def test_the_time_is_read_in_one_place(name: str):
    assert ("'TIME'" in body(name)) == (name == "_clock")
    assert "testclock" not in body(name)
    assert "os." not in body(name)


@pytest.mark.parametrize("name", SCRIPTS)
def test_time_is_read_once_and_only_if_the_caller_may_give_one(name: str):
    includes = re.findall(r"^--@include (\w+)$", lua.text(name), re.MULTILINE)

    assert ("_clock" in includes) == ("clock" in [what for _, what in arguments_of(name)])
    assert len(includes) == len(set(includes))


@pytest.mark.parametrize("name", NAMES)
def test_no_script_is_random_or_blocks(name: str):
    assert "math.random" not in body(name)
    assert not re.search(r"'(B[LRZ]\w+|WAIT|SUBSCRIBE|MULTI)'", body(name))


@pytest.mark.parametrize("name", NAMES)
def test_keys_are_declared_or_built_from_the_jobs_prefix(name: str):
    """What a call touches is a local name, a job's or schedule's key, or an element of KEYS; no text of its own."""
    for call in re.findall(r"redis\.p?call\('[A-Z]+', ([^,)]+)", body(name)):
        assert not call.startswith("'"), f"{call} is built in the script"
        if ".." in call:
            assert call.strip().startswith(("jobs .. ", "definitions .. ")), call


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_sent_is_the_body_without_comments(name: str):
    script = lua.load(name)

    assert "--" not in script.source
    assert "@include" not in script.source
    assert len(script.sha) == 40
    assert script is lua.load(name)


def test_a_comment_is_told_from_text_that_looks_like_one():
    made = lua.script("one", "--[[ what\nit is ]]\nlocal a = 1 -- why\n--@include _clock\n  return a\n")

    assert made.source.startswith("local a = 1\nlocal function read_clock")
    assert made.source.endswith("\nreturn a")
