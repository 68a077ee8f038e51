"""Jobs from the shell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime

import pytest

from schedq import Fixed, Queue, Steps
from schedq.transitions import announce
from tests.cli.conftest import Run
from tests.servers import Server
from tests.state import State

Look = Callable[[], State]


def test_a_payload_is_stored_and_its_id_printed(run: Run, queue: Queue, state: Look):
    (job_id,) = run("enqueue", "mail", '{"to": "ada", "n": [1, 2.5, null, "ü"]}').lines

    assert state().places() == {"pending": [job_id]}
    assert queue.claim(0).payload == {"to": "ada", "n": [1, 2.5, None, "ü"]}


def test_json_output_is_one_object(run: Run, queue: Queue, state: Look):
    found = run("enqueue", "mail", "1", "--json").json

    assert found == {"queue": "mail", "id": state().ids("pending")[0], "created": True}


def test_a_payload_may_come_from_standard_input(run: Run, queue: Queue):
    run("enqueue", "mail", "-", stdin='{\n  "to":\n  "ädä"}\n')

    assert queue.claim(0).payload == {"to": "ädä"}


@pytest.mark.parametrize(
    ("words", "payload"),
    [
        (["--task", "send"], {"task": "send"}),
        (
            ["--task", "send", "--args", '["ada", 1]', "--kwargs", '{"cc": null}'],
            {"task": "send", "args": ["ada", 1], "kwargs": {"cc": None}},
        ),
    ],
    ids=["bare", "arguments"],
)
def test_a_task_is_called_by_name(words: list[str], payload: object, run: Run, queue: Queue):
    run("enqueue", "mail", *words)

    assert queue.claim(0).payload == payload


def test_a_job_may_wait(run: Run, queue: Queue):
    run("enqueue", "mail", "1", "--delay", "1d12h", "--id", "delay")
    run("enqueue", "mail", "2", "--run-at", "2040-01-01T09:00", "--id", "local")
    run("enqueue", "mail", "3", "--run-at", "2040-01-01T09:00+05:00", "--id", "offset")

    due = {record.id: record.run_at_ms for record in queue.list_delayed()}

    assert due["delay"] == queue.get_job("delay").enqueued_at_ms + 36 * 3_600_000
    assert due["local"] == datetime.fromisoformat("2040-01-01T08:00:00+00:00").timestamp() * 1000
    assert due["offset"] == datetime.fromisoformat("2040-01-01T04:00:00+00:00").timestamp() * 1000


def test_options_are_stored_with_the_job(run: Run, queue: Queue):
    run("enqueue", "mail", "1", "--max-attempts", "7", "--backoff", "1,10s,1m", "--timeout", "2m")
    run("enqueue", "mail", "2", "--backoff", "5")

    first, second = queue.claim(0), queue.claim(0)
    assert (first.max_attempts, first.backoff, first.timeout_ms) == (7, Steps([1, 10, 60]), 120_000)
    assert second.backoff.wait(9) == Fixed(5).wait(9)


def test_one_job_waits_for_a_key(run: Run, queue: Queue, state: Look):
    (first,) = run("enqueue", "mail", "1", "--unique", "nightly").lines
    again = run("enqueue", "mail", "2", "--unique", "nightly")
    replacing = run("enqueue", "mail", "3", "--unique", "nightly", "--on-conflict", "replace", "--json")
    refused = run("enqueue", "mail", "4", "--unique", "nightly", "--on-conflict", "raise")

    complaint = f"schedq: no new job: job {first} holds the unique key 'nightly'"
    assert (again.code, again.out.split(), again.complaint) == (0, [first], complaint)
    assert replacing.json == {"queue": "mail", "id": first, "created": False}
    assert (refused.code, refused.complaint) == (
        1,
        f"schedq: job {first} of queue mail holds the unique key 'nightly'",
    )
    assert state().places() == {"pending": [first]}
    assert queue.get_job(first).payload == 3


def test_a_key_may_be_held_until_the_start_and_for_a_while(run: Run, queue: Queue, state: Look):
    words = ("enqueue", "mail", "1", "--unique", "k", "--until", "start")
    (first,) = run(*words).lines
    queue.claim(0)
    (second,) = run(*words, "--per", "1h").lines
    queue.cancel(second)

    assert first != second
    assert run(*words, "--per", "1h", "--json").json["id"] == second


@pytest.mark.parametrize(
    ("words", "mistake"),
    [
        (["1", "--per", "5"], "--until, --per and --on-conflict need --unique KEY"),
        (["--lines", "--unique", "k"], "--unique is the key of one job and can't be used with --lines"),
        (["1", "--unique", "x" * 201], "a unique key must be 1 to 200 printable characters"),
    ],
)
def test_a_key_in_the_wrong_place_is_refused(words: list[str], mistake: str, run: Run, queue: Queue):
    said = run("enqueue", "mail", *words)
    assert said.code == 2
    assert mistake in said.err


def test_a_job_may_have_to_begin_in_time(run: Run, queue: Queue):
    (job_id,) = run("enqueue", "mail", "1", "--expires", "2m").lines

    assert queue.get_job(job_id).fields["expires"] == "+120000"
    assert any(line.startswith("expires ") for line in run("job", job_id, "--queue", "mail").lines)
    assert re.search(r"it expires in (1 min \d+ s|2 min)", "".join(run("why", job_id, "--queue", "mail").lines))
    assert "it must be more than 0" in run("enqueue", "mail", "1", "--expires", "0").err


def test_a_job_may_have_headers(run: Run, queue: Queue):
    (job_id,) = run("enqueue", "mail", "1", "--header", "tenant=acme", "--header", "query=a=b", "--header", "x=").lines

    assert queue.get_job(job_id).headers == {"tenant": "acme", "query": "a=b", "x": ""}
    assert '"tenant": "acme"' in run("job", job_id, "--queue", "mail").out
    found = run("job", job_id, "--queue", "mail", "--json").json
    assert found["headers"] == {"tenant": "acme", "query": "a=b", "x": ""}
    assert found["fields"]["headers"] == '{"tenant":"acme","query":"a=b","x":""}'


def test_the_jobs_of_many_lines_share_headers(run: Run, queue: Queue):
    ids = run("enqueue", "mail", "--lines", "--header", "tenant=acme", stdin="1\n2\n").lines

    assert [queue.get_job(job_id).headers for job_id in ids] == [{"tenant": "acme"}] * 2


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (["tenant"], "'tenant' must be NAME=VALUE"),
        (["=acme"], "name must be 1 to 200 printable characters, got ''"),
        (["a=1", "a=2"], "'a' is given twice"),
        (["a=" + "x" * 4096], "more than 4,096"),
    ],
)
def test_invalid_headers_are_wrong_usage(run: Run, queue: Queue, state: Look, given: list[str], what: str):
    said = run("enqueue", "mail", "1", *(word for header in given for word in ("--header", header)))

    assert said.code == 2
    assert what in " ".join(said.err.split())
    assert state().places() == {}


def test_headers_damaged_by_another_program_are_shown_unchanged(run: Run, queue: Queue, desk: Server):
    job_id = queue.enqueue("mail", headers={"tenant": "acme"})
    with desk.client() as client:
        client.hset(queue.settings.keys.job(job_id), "headers", "what is \x1b[31m this")

    assert "headers\nwhat is \\x1b[31m this" in run("job", job_id, "--queue", "mail").out
    found = run("job", job_id, "--queue", "mail", "--json").json
    assert (found["headers"], found["fields"]["headers"]) == ({}, "what is \x1b[31m this")


def test_a_job_may_set_how_long_its_record_is_kept(run: Run, queue: Queue):
    (job_id,) = run("enqueue", "mail", "1", "--completed-ttl", "0", "--failed-ttl", "2d").lines

    assert queue.get_job(job_id).ttls_ms == {"completed_ttl": 0, "failed_ttl": 172_800_000}
    shown = [line.split(maxsplit=1) for line in run("job", job_id, "--queue", "mail").lines]
    assert ["completed_ttl", "0 ms"] in shown
    assert ["failed_ttl", "2 d"] in shown


def test_an_id_of_ones_own_is_stored_once(run: Run, queue: Queue, state: Look):
    for _ in range(2):
        assert run("enqueue", "mail", "1", "--id", "welcome-17").lines == ["welcome-17"]

    assert state().places() == {"pending": ["welcome-17"]}


def test_lines_become_jobs_in_order(run: Run, queue: Queue, state: Look):
    text = "".join(f'{{"n": {n}}}\n\n' for n in range(2500))

    ids = run("enqueue", "mail", "--lines", stdin=text).lines

    assert state().places() == {"pending": ids}
    assert len(ids) == 2500
    assert [record.payload["n"] for record in queue.list_pending(offset=1995, limit=10)] == [*range(1995, 2005)]


def test_lines_with_json_output_are_one_object(run: Run, queue: Queue, state: Look):
    found = run("enqueue", "mail", "--lines", "--json", "--delay", "5", stdin="1\n2").json

    assert found == {"queue": "mail", "ids": state().ids("delayed")}


def test_an_empty_input_stores_no_jobs(run: Run):
    assert run("enqueue", "mail", "--lines").lines == []


@pytest.mark.parametrize("as_json", [False, True], ids=["lines", "json"])
def test_an_invalid_line_is_named_and_the_jobs_stored_before_it_are_reported(
    as_json: bool, run: Run, queue: Queue, state: Look
):
    text = "".join(f"{n}\n" for n in range(1999)) + "{oops\n2000\n"

    said = run("enqueue", "mail", "--lines", *(["--json"] if as_json else []), stdin=text)

    assert said.code == 1
    assert said.complaint.startswith("schedq: line 2000: payload is not JSON: ")
    assert said.complaint.endswith("; 1,000 jobs before it stored")
    ids = json.loads(said.out)["ids"] if as_json else said.out.splitlines()
    assert state().places() == {"pending": ids}
    assert len(ids) == 1000


def test_a_line_that_is_not_utf8_is_named(run: Run):
    said = run("enqueue", "mail", "--lines", stdin=b'"fine"\n"\xff\xfe"\n')

    assert said.code == 1
    assert "line 2: payload is not JSON" in said.complaint
    assert said.out == ""


def test_with_full_memory_the_jobs_that_were_stored_are_reported(run: Run):
    with Server(maxmemory="4mb") as small:
        said = run("enqueue", "mail", "--lines", "--redis", small.unix_url, stdin=f'"{"x" * 50_000}"\n' * 300)

        with small.client() as client:
            stored = client.lrange("queue:mail:pending", 0, -1)

    assert said.code == 1
    assert "is full" in said.complaint
    assert said.out.splitlines() == stored[::-1]
    assert 0 < len(stored) < 300


def test_the_durability_option_overrides_the_queues_setting(run: Run, make_queue: Callable[..., Queue], state: Look):
    application = make_queue(durability="replicated")
    application._ask(announce.announce(application.settings))  # as its workers do

    for words in ((), ("--durability", "replicated")):
        said = run("enqueue", "mail", "1", *words)
        assert said.code == 1
        assert "has 0 of 1 replicas; nothing was stored" in said.complaint
    assert state().places() == {}

    (job_id,) = run("enqueue", "mail", "1", "--durability", "memory").lines
    assert state().places() == {"pending": [job_id]}


def test_an_id_that_must_be_new_is_refused_and_a_finished_one_may_be_used_again(run: Run, queue: Queue, state: Look):
    run("enqueue", "mail", "1", "--id", "nightly", "--must-create")

    taken = run("enqueue", "mail", "1", "--id", "nightly", "--must-create")
    busy = run("enqueue", "mail", "2", "--id", "nightly", "--reuse-id")
    job = queue.claim(0)
    assert job and queue.complete(job)
    again = run("enqueue", "mail", "2", "--id", "nightly", "--reuse-id")

    assert (taken.code, busy.code) == (1, 1)
    assert "job nightly of queue mail already exists (pending)" in taken.err
    assert "job nightly of queue mail is pending" in busy.err
    assert again.lines == ["nightly"]
    assert state().places() == {"pending": ["nightly"]}
