"""Jobs chosen by a filter: jobs, requeue, cancel, reschedule and purge; export and import."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from schedq import Debounce, Discard, Fixed, Queue
from tests.cli.conftest import Run
from tests.cli.scenes import claimed, failed_jobs, one_of_each
from tests.state import State

Look = Callable[[], State]


def failed_calls(queue: Queue, count: int) -> list[str]:
    """Failed jobs, every third of which calls `mail`, the others `send`."""
    ids = queue.enqueue_many([{"task": "send" if n % 3 else "mail", "args": [n]} for n in range(count)])
    for _ in ids:
        queue.fail(claimed(queue), Discard("timeout"))
    return ids


# -- jobs


def test_jobs_are_listed_that_match(run: Run, queue: Queue, state: Look):
    one_of_each(queue)

    found = run("jobs", "mail", "--task", "send", "--error", "user", "--json").json

    assert [job["id"] for job in found["jobs"]] == ["failed"]
    assert found["looked"]["failed"] == 1
    assert found["cursors"] == {}


def test_jobs_are_listed_and_cancelled_by_their_unique_key(run: Run, queue: Queue, state: Look):
    queue.enqueue(1, unique="nightly:2")
    job_id = queue.enqueue(2, unique="nightly")

    assert [job["id"] for job in run("jobs", "mail", "--unique", "nightly", "--json").json["jobs"]] == [job_id]
    run("cancel", "--unique", "nightly", "--yes")
    assert queue.get_job(job_id).status == "cancelled"
    shown = "\n".join(run("job", job_id).lines)
    assert re.search(r"unique key +nightly\n", shown)
    assert "held until it has ended; another call returns this job" in shown


def test_jobs_are_listed_and_cancelled_by_a_header(run: Run, queue: Queue, state: Look):
    queue.enqueue(1, headers={"tenant": "acme & sons"})
    job_id = queue.enqueue(2, headers={"tenant": "acme"})

    assert [job["id"] for job in run("jobs", "mail", "--header", "tenant=acme", "--json").json["jobs"]] == [job_id]
    question = run("cancel", "--header", "tenant=acme", "--dry-run").lines
    run("cancel", "--header", "tenant=acme", "--yes")
    assert "header 'tenant=acme'" in "".join(question)
    assert [job.payload for job in queue.list_cancelled()] == [2]


def test_a_page_of_matches_says_how_to_go_on(run: Run, queue: Queue, state: Look):
    ids = failed_calls(queue, 30)

    lines = run("jobs", "mail", "--state", "failed", "--task", "send", "--limit", "15").lines
    (command,) = [line.removeprefix("next page: schedq ") for line in lines if line.startswith("next page")]
    found = run(*command.split(), "--json").json

    assert [job["id"] for job in found["jobs"]] == [job_id for n, job_id in enumerate(ids) if n % 3][4::-1]


def test_a_command_searches_a_limited_number_of_jobs_and_prints_how_to_continue(run: Run, queue: Queue):
    queue.enqueue_many(range(600))
    queue.enqueue_many(range(50), delay=60)

    found = run("jobs", "mail", "--text", "none", "--look", "300", "--json").json
    assert found["looked"] == {"pending": 50, "delayed": 50} | dict.fromkeys(
        found["looked"].keys() - {"pending", "delayed"}, 0
    )
    assert found["cursors"].keys() == {"pending"}

    lines = run("jobs", "mail", "--text", "599", "--state", "pending", "--look", "300").lines
    assert "0 found, 300 of 600 searched" in lines
    (command,) = [line.removeprefix("next page: schedq ") for line in lines if line.startswith("next page")]
    assert [job["payload"] for job in run(*command.split(), "--json").json["jobs"]] == [599]


def test_a_filter_without_matches_is_reported(run: Run, queue: Queue, state: Look):
    queue.enqueue(1)

    assert run("jobs", "mail", "--text", "[x]").lines == ["queue mail holds no such jobs (text '[x]')"]


@pytest.mark.parametrize(
    "words",
    [
        ["--text", "x", "--offset", "1"],
        ["--state", "broken", "--text", "x"],
        ["--cursor", "abc"],
        ["--older", "soon"],
        ["--text", ""],
    ],
    ids=" ".join,
)
def test_invalid_filters_are_wrong_usage(words: list[str], run: Run, queue: Queue):
    queue.enqueue(1)

    assert run("jobs", "mail", *words).code == 2


def test_a_cursor_of_something_else_is_refused(run: Run, queue: Queue):
    queue.enqueue(1)

    said = run("jobs", "mail", "--state", "failed", "--cursor", "abc")

    assert said.code == 1
    assert "was not returned by `find`" in said.complaint


# -- acting


def test_failed_jobs_of_a_filter_are_requeued(run: Run, queue: Queue, state: Look):
    ids = failed_calls(queue, 9)

    assert run("requeue", "--task", "mail", "--error", "timeout", "--yes").lines == ["queue mail: 3 jobs requeued"]

    assert state().ids("pending") == ids[::3]


def test_a_dry_run_counts_the_matching_jobs(run: Run, queue: Queue, state: Look):
    ids = failed_calls(queue, 9)

    (line,) = run("requeue", "--task", "mail", "--older", "0", "--dry-run").lines

    assert line == "queue mail: 3 failed jobs of 9 would be requeued (task mail, older than 0 s)"
    assert state().places() == {"failed": ids}


def test_nothing_of_a_filter_is_done_unasked(run: Run, queue: Queue, state: Look):
    ids = failed_calls(queue, 9)

    for words in (["requeue", "--task", "mail"], ["purge", "mail", "--state", "failed"]):
        said = run(*words)
        assert said.code == 1
        assert "add --yes; nothing was done" in said.complaint

    assert state().places() == {"failed": ids}


def test_matching_waiting_jobs_are_cancelled_and_running_ones_only_when_their_state_is_named(
    run: Run, queue: Queue, state: Look
):
    one_of_each(queue)

    first = run("cancel", "--text", "n", "--yes", "--json").json
    second = run("cancel", "--state", "processing", "--yes").lines

    assert first.items() >= {"states": ["pending", "delayed"], "matched": 2, "done": 2, "refused": 0}.items()
    assert second == ["queue mail: 1 job cancelled or asked to stop"]
    assert sorted(state().ids("cancelled")) == ["cancelled", "delayed", "pending"]


def test_delayed_jobs_of_a_filter_get_another_time(run: Run, queue: Queue, state: Look):
    queue.enqueue_many([{"task": "send"}, {"task": "mail"}], delay=60)

    assert run("reschedule", "--task", "send", "--now", "--yes").lines == ["queue mail: 1 job brought forward to now"]
    assert run("reschedule", "--all", "--delay", "1h", "--yes").lines == ["queue mail: 1 job rescheduled"]

    assert queue.list_delayed()[0].run_at_ms > queue.stats()["now_ms"] + 3_000_000


def test_a_purge_of_a_state_spares_the_others(run: Run, queue: Queue, state: Look):
    one_of_each(queue)

    assert run("purge", "mail", "--state", "failed", "--yes").lines == ["queue mail: 1 job deleted"]
    assert run("purge", "mail", "--text", "n", "--yes", "--json").json["purged"] == 4

    assert state().places() == {"processing": ["processing"]}


def test_a_dry_run_of_a_whole_purge_counts_every_place(run: Run, queue: Queue, state: Look):
    one_of_each(queue)

    (line,) = run("purge", "mail", "--dry-run").lines

    assert line.startswith("queue mail: 6 jobs would be deleted (")
    assert len(state().jobs()) == 6


@pytest.mark.parametrize(
    "words",
    [
        ["requeue", "x", "--task", "send"],
        ["cancel", "x", "--state", "pending"],
        ["cancel"],
        ["cancel", "x", "--dry-run"],
        ["reschedule", "x", "--all", "--now"],
        ["reschedule", "--now"],
    ],
    ids=" ".join,
)
def test_ids_and_filters_do_not_mix(words: list[str], run: Run, queue: Queue):
    queue.enqueue(1)

    assert run(*words).code in ((0, 2) if words == ["cancel"] else (2,))


# -- export, import


def test_exported_jobs_are_imported_unchanged_elsewhere(run: Run, make_queue: Callable[..., Queue]):
    old, new = make_queue("old"), make_queue("new")
    old.enqueue({"grüße": 1.5}, job_id="a", max_attempts=7, backoff=Fixed(5), timeout=9)
    old.enqueue([1], job_id="b")
    old.enqueue("later", job_id="c", delay=1000)
    old.enqueue("once", job_id="d", unique=Debounce(key="k", wait=1000, max_wait=2000))

    lines = run("export", "old").out
    said = run("import", "new", stdin=lines)

    assert said.lines == ["queue new: 4 jobs stored"]
    assert [job.id for job in new.list_pending()] == ["a", "b"]
    for job_id in "abc":
        assert new.get_job(job_id) == old.get_job(job_id)
    assert run("export", "new").out == lines


def test_the_same_lines_again_change_nothing(run: Run, queue: Queue, state: Look):
    queue.enqueue_many(range(5))
    lines = run("export", "mail").out
    before = state()

    assert run("import", "mail", stdin=lines).lines == ["queue mail: 0 jobs stored; 5 already existed"]

    assert state() == before


def test_finished_jobs_are_imported_only_on_request(run: Run, queue: Queue, make_queue: Callable[..., Queue]):
    one_of_each(queue)
    new = make_queue("new")
    lines = run("export", "mail").out
    assert json.loads(next(line for line in lines.splitlines() if '"failed"' in line))["last_error"].startswith("no [")

    first = run("import", "new", "--json", stdin=lines).json
    second = run("import", "new", "--finished", "--json", stdin=lines).json

    assert first == {"queue": "new", "stored": 3, "existed": 0, "skipped": 3, "refused": []}
    assert second == {"queue": "new", "stored": 3, "existed": 3, "skipped": 0, "refused": []}
    assert {job.id: job.attempts for job in new.list_pending()}.keys() == {
        *("pending", "processing", "completed", "failed", "cancelled")
    }
    assert new.get_job("failed").attempts == 0


BAD = {
    "no JSON": "{",
    "no object": "[1]",
    "no id": '{"payload":1}',
    "a bad id": '{"id":"a b","payload":1}',
    "no payload": '{"id":"x"}',
    "two payloads": '{"id":"x","payload":1,"payload_text":"1"}',
    "a payload that is no JSON": '{"id":"x","payload_text":"{"}',
    "no state": '{"id":"x","payload":1,"state":"gone"}',
    "no instant": '{"id":"x","payload":1,"state":"delayed"}',
    "a bad instant": '{"id":"x","payload":1,"run_at_ms":-1}',
    "bad attempts": '{"id":"x","payload":1,"max_attempts":0}',
    "a bad backoff": '{"id":"x","payload":1,"backoff":"never"}',
    "an unknown field": '{"id":"x","payload":1,"priority":3}',
    "no UTF-8": b'{"id":"x","payload":"\xff"}',
}


@pytest.mark.parametrize("bad", BAD.values(), ids=list(BAD))
def test_an_invalid_line_is_named_and_nothing_of_it_is_stored(bad: str | bytes, run: Run, queue: Queue, state: Look):
    line = bad.encode() if isinstance(bad, str) else bad

    said = run("import", "mail", stdin=b'{"id":"a","payload":1}\n\n' + line + b'\n{"id":"b","payload":2}')

    assert said.code == 1
    assert said.complaint.startswith("schedq: line 3: ")
    assert said.out.splitlines() == ["queue mail: 2 jobs stored; 1 line refused"]
    assert state().places() == {"pending": ["a", "b"]}


def test_an_id_with_another_payload_is_refused_by_its_line(run: Run, queue: Queue, state: Look):
    queue.enqueue(1, job_id="a")

    said = run("import", "mail", stdin='{"id":"b","payload":2}\n{"id":"a","payload":2}')

    assert "line 2: job a of queue mail exists with another payload" in said.complaint
    assert queue.get_job("a").payload == 1


def test_a_payload_formatted_by_another_language_is_imported_exactly(
    run: Run, queue: Queue, make_queue: Callable[..., Queue]
):
    text = '{ "a" : 1.0e2 }'
    queue.enqueue(1, job_id="a")
    queue._ask(_command("HSET", queue.settings.keys.job("a"), "payload", text))
    new = make_queue("new")

    run("import", "new", stdin=run("export", "mail").out)

    assert new.get_job("a").fields["payload"] == text


def _command(*words: str):
    from schedq.transitions import Operation

    return Operation("a test's own", None, (), words, lambda reply: reply)


def test_only_jobs_that_match_the_filter_are_exported(run: Run, queue: Queue, state: Look):
    failed_jobs(queue, 3)
    queue.enqueue({"task": "send"}, job_id="a")

    assert [json.loads(line)["id"] for line in run("export", "mail", "--task", "send").lines] == ["a"]
