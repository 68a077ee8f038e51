"""Mistakes: one line that names what is wrong and the way out, exit code 1 or 2, and nothing done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click
import pytest

from schedq import Queue
from schedq.cli.queues import load_queue
from tests.cli.conftest import Run
from tests.servers import Server

USAGE = {
    ("tpyo",): "No such command 'tpyo'",
    ("enqueue", "mail", "{}", "--dely", "5"): "--delay",
    ("stats", "no:name"): "no:name",
    ("stats", "a", "b"): "unexpected extra argument",
    ("stats", "mail", "--scan"): "leave NAME out",
    ("stats", "--redis", "http://localhost"): "unknown Redis URL scheme in 'http://localhost'",
    ("stats", "mail", "--redis", "redis://:s3cret@localhost:port"): "the port and the database must be numbers",
    ("stats", "mail", "--redis", "redis"): "unknown Redis URL scheme",
    ("jobs",): "there is no queue here",
    ("jobs", "mail", "--state", "lost"): "'lost' is not one of 'pending'",
    ("jobs", "mail", "--offset", "-1"): "--offset",
    ("jobs", "mail", "--limit", "0"): "--limit",
    ("jobs", "mail", "--limit", "ten"): "--limit",
    ("job", "no:id"): "job id 'no:id'",
    ("job", "a", "--queue", "no:name"): "no:name",
    ("cancel", "a", "b c"): "job id 'b c'",
    ("requeue",): "",
    ("requeue", "--yes"): "give ids, or --failed",
    ("requeue", "a", "--failed"): "not both",
    ("reschedule", "a"): "give one of --delay, --run-at and --now",
    ("reschedule", "a", "--now", "--delay", "5"): "give one of",
    ("reschedule", "a", "--delay", "soon"): "'soon' is not a duration; write 90 (seconds), 5m, 1d12h",
    ("reschedule", "a", "--run-at", "tomorrow"): "'tomorrow' is not a valid time; write 2030-01-01T09:00",
    ("pause", "*"): "queue name '*'",
    ("resume", ""): "queue name ''",
    ("purge", "a b"): "queue name 'a b'",
    ("promoter", "mail", "a:b"): "a:b",
    ("enqueue", "mail"): "give PAYLOAD, --lines or --task",
    ("enqueue", "mail", "{}", "--task", "t"): "not PAYLOAD and --task",
    ("enqueue", "mail", "--lines", "--task", "t"): "not --lines and --task",
    ("enqueue", "mail", "hello"): "a string needs quotes: '\"hello\"'",
    ("enqueue", "mail", '{"a": NaN}'): "NaN is not JSON",
    ("enqueue", "mail", "{" * 5000): "not JSON",
    ("enqueue", "mail", "-"): "not JSON",
    ("enqueue", "mail", "{}", "--delay", "5", "--run-at", "2030-01-01"): "give --delay or --run-at, not both",
    ("enqueue", "mail", "{}", "--delay", "-5"): "'-5' is not a duration",
    ("enqueue", "mail", "{}", "--delay", "nan"): "'nan' is not a duration",
    ("enqueue", "mail", "{}", "--delay", "101w5"): "not a duration",
    ("enqueue", "mail", "{}", "--delay", "99999999d"): "at most 100 years",
    ("enqueue", "mail", "{}", "--delay", "9" * 400): "at most 100 years",
    ("enqueue", "mail", "{}", "--run-at", "9999-12-31T23:59:59-23:00"): "is not a valid time",
    ("enqueue", "mail", "{}", "--run-at", "2030-02-30T09:00"): "is not a valid time",
    ("enqueue", "mail", "{}", "--id", "a:b"): "job id 'a:b'",
    ("enqueue", "mail", "--lines", "--id", "a"): "--id names one job",
    ("enqueue", "mail", "1", "--must-create"): "need --id",
    ("enqueue", "mail", "1", "--id", "a", "--must-create", "--reuse-id"): "not both",
    ("enqueue", "mail", "{}", "--args", "[]"): "--args and --kwargs need --task",
    ("enqueue", "mail", "--task", "t", "--args", "{}"): "not a JSON array",
    ("enqueue", "mail", "--task", "t", "--kwargs", "[1]"): "not a JSON object",
    ("enqueue", "mail", "--task", "t", "--kwargs", "{"): "not JSON",
    ("enqueue", "mail", "{}", "--max-attempts", "0"): "--max-attempts",
    ("enqueue", "mail", "{}", "--timeout", "0"): "more than 0",
    ("enqueue", "mail", "{}", "--backoff", "1,,2"): "'' is not a duration",
    ("server", "here", "--stop", "there"): "either start here or stop there",
    ("completion", "tcsh"): "'tcsh' is not one of",
    ("completion",): "",
}
"""Those of `worker` and `promoter`, which set signals and logging, are in tests/stories/processes/test_starting.py."""


@pytest.mark.parametrize("words", USAGE, ids=lambda words: " ".join(words)[:60])
def test_a_mistake_of_usage_is_one_line_and_exit_code_2(words: tuple[str, ...], run: Run, desk: Server):
    said = run(*words)

    assert said.code == 2
    assert said.out == ""
    if USAGE[words]:
        assert USAGE[words] in said.complaint
        assert said.complaint.startswith(f"schedq{'' if words == ('tpyo',) else f' {words[0]}'}: ")
        assert said.complaint.endswith("--help)")
        assert "s3cret" not in said.err
    else:
        assert said.err.startswith("Usage: schedq ")  # nothing was said at all: help
    with desk.client() as client:
        assert client.keys() == []


REFUSED = {
    ("job", "never-was"): "nothing is stored about job never-was in queue mail",
    ("cancel", "never-was"): "nothing is stored about job never-was in queue mail",
    ("requeue", "never-was"): "nothing is stored about job never-was in queue mail",
    ("requeue", "a"): "job a is pending; only a failed or cancelled job can be requeued",
    ("reschedule", "a", "--now"): "job a is pending; only a delayed job can be rescheduled",
    ("cancel", "a", "b"): "add --yes; nothing was done",
    ("purge", "mail"): "add --yes; nothing was done",
    ("enqueue", "mail", "[2]", "--id", "a"): "job a of queue mail exists with another payload",
    ("enqueue", "mail", f'"{"x" * 300_000}"'): "more than max_payload=262,144",
    ("enqueue", "mail", "[" * 101 + "]" * 101): "deeper than 100",
    ("enqueue", "mail", r'"\ud800"'): "lone surrogate",
    ("stats", "--redis", "redis://:wr0ng@127.0.0.1:{port}"): "rejects the user name or password",
    ("stats", "--redis", "redis://127.0.0.1:{port}/9999"): ":{port}/9999 ",
}


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: " ".join(words)[:60])
def test_a_refusal_is_one_line_and_exit_code_1(words: tuple[str, ...], run: Run, queue: Queue, desk: Server):
    queue.enqueue([1], job_id="a")

    said = run(*(word.replace("{port}", str(desk.port)) for word in words))

    assert said.code == 1
    assert said.out == ""
    assert REFUSED[words].replace("{port}", str(desk.port)) in said.complaint
    assert said.complaint.startswith("schedq: ")
    assert "wr0ng" not in said.err
    assert [record.id for record in queue.list_pending()] == ["a"]


@pytest.mark.parametrize(
    "words",
    [
        ("stats",),
        ("stats", "mail"),
        ("jobs", "mail"),
        ("job", "a"),
        ("job", "a", "--queue", "mail"),
        ("enqueue", "mail", "{}"),
        ("enqueue", "mail", "--lines"),
        ("requeue", "a", "--queue", "mail"),
        ("cancel", "a", "--queue", "mail"),
        ("reschedule", "a", "--now", "--queue", "mail"),
        ("pause", "mail"),
        ("resume", "mail"),
        ("purge", "mail", "--yes"),
    ],
    ids=" ".join,
)
def test_redis_that_is_down_is_one_line(words: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("schedq.cli.queues.RETRY_S", 0.1)

    said = run(*words, "--redis", "redis://127.0.0.1:1")

    assert (said.code, said.out) == (1, "")
    assert "redis://127.0.0.1:1/0 does not respond" in said.complaint


def test_for_the_default_redis_the_error_mentions_the_embedded_server(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SCHEDQ_REDIS_URL")
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setattr("schedq.connection.address.DEFAULT_URL", "redis://127.0.0.1:1/0")

    assert "use embedded://FOLDER" in run("stats").complaint


def test_a_module_that_ends_the_process_when_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "leaves_at_once.py").write_text("import sys\nsys.exit('no configuration')\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(click.BadParameter, match="leaves_at_once can't be imported: SystemExit: no configuration"):
        load_queue("leaves_at_once:queue")


def test_an_error_in_a_module_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "wrong_options.py").write_text("from schedq import Queue\n\nqueue = Queue('my queue')\n")
    (tmp_path / "uses_wrong_options.py").write_text("import json\nimport wrong_options\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(click.BadParameter, match=rf"queue name 'my queue' .*\({tmp_path}/wrong_options.py, line 3\)$"):
        load_queue("uses_wrong_options:queue")


def test_a_name_that_steers_a_terminal_is_shown_harmless(run: Run):
    said = run("stats", "\x1b[31mred\nsecond line")

    assert "\x1b" not in said.complaint


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a", "b"], "2 queues have a job of this id: a, b; name one with --queue NAME or SCHEDQ_QUEUE"),
        ([f"q{n:02}" for n in range(25)], "q19 and 5 more; name one"),
    ],
    ids=["two", "many"],
)
def test_an_id_that_several_queues_have_needs_the_queue_named(
    names: list[str], said: str, run: Run, make_queue: Callable[..., Queue]
):
    for name in names:
        make_queue(name).enqueue(1, job_id="x")

    found = run("job", "x")

    assert found.code == 2
    assert said in found.complaint


def test_schedules_are_found_in_several_queues(run: Run, make_queue: Callable[..., Queue]):
    first, second = make_queue("a"), make_queue("b")
    make_queue("empty").enqueue(1)
    for queue, name in ((first, "both"), (second, "both"), (second, "daily")):
        queue.schedules.upsert(name, every=3600, payload=1)

    assert run("schedules", "pause", "daily").lines == ["daily: paused"]
    assert run("schedules", "show", "daily", "--json").json["queue"] == "b"
    assert "2 queues have a schedule of this id: a, b; name one" in run("schedules", "trigger", "both").complaint
    assert "nothing is stored about schedule nope in any of 3 queues" in run("schedules", "next", "nope").complaint
    lines = run("schedules", "ls").lines
    assert [line.split()[0] for line in lines] == ["queue", "id", "both", "queue", "id", "both", "daily"]
    found = run("schedules", "ls", "--json").json["queues"]
    assert {page["queue"]: [one["id"] for one in page["schedules"]] for page in found} == {
        "a": ["both"],
        "b": ["both", "daily"],
    }


@pytest.mark.parametrize("command", ["job", "result", "requeue", "cancel", "reschedule"])
def test_the_queue_of_a_job_is_found_by_its_id(command: str, run: Run, make_queue: Callable[..., Queue]):
    other, queue = make_queue("a"), make_queue("b")
    other.enqueue(1, job_id="other")
    queue.enqueue({"n": 1}, job_id="x", delay=60)
    if command in ("requeue", "result"):
        queue.cancel("x")

    found = run(command, "x", *(["--now"] if command == "reschedule" else []))
    missing = run(command, "nowhere", *(["--now"] if command == "reschedule" else []))

    assert found.code == (command == "result")  # it was cancelled, which the message says
    assert "x" in found.out + found.err
    assert queue.job("x").status() == {"cancel": "cancelled", "job": "delayed", "result": "cancelled"}.get(
        command, "pending"
    )
    assert (missing.code, missing.complaint) == (
        1,
        "schedq: nothing is stored about job nowhere in any of 2 queues",
    )


def test_a_mistyped_name_is_not_remembered(run: Run, queue: Queue, desk: Server):
    queue.enqueue(1)

    for words in (["stats", "mial"], ["jobs", "mial"], ["resume", "mial"], ["purge", "mial", "--yes"]):
        run(*words)

    with desk.client() as client:
        assert client.smembers("schedq:queues") == {"mail"}
    assert run("stats", "mial").complaint == "schedq: nothing is stored about queue mial; there is 1 queue here: mail"
