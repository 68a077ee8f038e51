"""Failed jobs by error; the audit stream; asking a worker to stop."""

from __future__ import annotations

import time
from typing import Any

import pytest

from schedq import Discard, UsageError
from schedq.inspect import error_groups
from schedq.inspect.error_groups import masked
from schedq.transitions import heartbeat
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def fail(queue: Handle, task: str, error: str) -> str:
    job_id: str = queue.enqueue({"task": task})
    queue.fail(queue.claim(0), Discard(error))
    return job_id


# -- errors


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no user 17", "no user 4,711"),
        ("KeyError: 'user-17'", "KeyError: 'user-18'"),
        ("job 01k810qpnt0014iulh3ocjbfpe gone", "job 01k810rs2r000e5dh83d8snsqj gone"),
        ("9f1c2a3e-0000-4a4a-8b8b-0123456789ab not found", "00000000-1111-4a4a-8b8b-abcdefabcdef not found"),
        ("<object at 0x7f00aa>", "<object at 0x7f11bb>"),
        ("ada@example.org bounced", "grace.hopper@mail.example.org bounced"),
        ("timed out after 1.5 s\nline 3", "timed out after 30 s\nline 900"),
        ("commit deadbeef01 is bad", "commit 0123abcdef99 is bad"),
    ],
)
def test_errors_that_differ_only_in_names_are_grouped(one: str, other: str):
    assert masked(one) == masked(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no such user", "no such table"),
        ("ConnectionRefusedError: mail", "ConnectionResetError: mail"),
        ("", "x"),
        ("ProgrammingErrorInTheDatabase", "ProgrammingErrorInTheTemplate"),
    ],
)
def test_errors_that_say_something_else_are_two(one: str, other: str):
    assert masked(one) != masked(other)


def test_ids_are_masked_and_the_text_around_them_is_unchanged():
    assert masked("-job-17-of-the-night- gone, abcdefgh-1234567_ too") == "-<id>- gone, <id> too"
    assert masked("only-words-with-dashes 1234567-1234567-1234567") == "only-words-with-dashes <n>-<n>-<n>"
    assert masked("mail to a@b@c.example.org. bounced") == "mail to a@<address>. bounced"


@pytest.mark.parametrize("part", ["a", "a.", "a-", "1-", "-", "_", "a@", "a@a.", "0x", "f", "1.", "a1-"])
def test_no_error_takes_much_longer_to_mask_than_its_length(part: str, monkeypatch: pytest.MonkeyPatch):
    """CPU time for texts of 16 times the length: 16 times as much, not 256 times."""
    monkeypatch.setattr(error_groups, "_LONGEST", 1 << 20)
    short, long = part * (4_000 // len(part)), part * (64_000 // len(part))

    def seconds(text: str) -> float:
        began = time.process_time()
        masked(text)
        return time.process_time() - began

    assert min(seconds(long) for _ in range(3)) < 64 * max(min(seconds(short) for _ in range(5)), 1e-4)


def test_failed_jobs_are_grouped_by_their_errors(queue: Handle, clock: Clock):
    began = clock.now_ms
    first = fail(queue, "send", "no user 17")
    clock.pass_time(5)
    fail(queue, "pay", "card refused")
    clock.pass_time(5)
    last = fail(queue, "charge", "no user 18")

    found = queue.inspector.errors()

    assert (found.looked_at, found.failed) == (3, 3)
    users, card = found.groups
    assert (users.text, users.example, users.count) == ("no user <n>", "no user 18", 2)
    assert (users.first_at_ms, users.last_at_ms) == (began, began + 10_000)
    assert users.tasks == {"charge": 1, "send": 1}
    assert users.job_ids == (last, first)
    assert (card.text, card.count) == ("card refused", 1)


def test_the_number_of_examined_jobs_is_reported(queue: Handle):
    for n in range(7):
        fail(queue, "send", f"no user {n}")

    found = queue.inspector.errors(limit=4)

    assert (found.looked_at, found.failed, found.groups[0].count) == (4, 7, 4)


def test_many_failed_jobs_are_read_page_by_page(queue: Handle):
    for n in range(320):
        fail(queue, "send", f"no user {n}")

    found = queue.inspector.errors()

    assert (found.looked_at, found.groups[0].count, len(found.groups[0].job_ids)) == (320, 320, 10)


@pytest.mark.parametrize("limit", [0, -1, 100_001, True, "9"])
def test_a_limit_of_errors_that_makes_no_sense_is_refused(queue: Handle, limit: Any):
    with pytest.raises(UsageError, match="limit"):
        queue.inspector.errors(limit)


def test_a_queue_without_failed_jobs_has_no_errors(queue: Handle):
    assert queue.inspector.errors().groups == ()


# -- audit


def test_the_log_has_finished_jobs_and_actions(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1)
    queue.complete(queue.claim(0))
    clock.pass_time(3)
    queue.pause()

    ended, paused = queue.inspector.log()

    assert (ended.move, ended.id, ended.attempts, ended.at_ms) == ("completed", job_id, 1, clock.now_ms - 3000)
    assert (paused.move, paused.id, paused.at_ms) == ("pause", "", clock.now_ms)


def test_a_page_of_the_log_continues_after_an_entry(queue: Handle):
    for _ in range(5):
        queue.enqueue(1)
        queue.complete(queue.claim(0))
    newest = queue.inspector.log(limit=2)

    everything = queue.inspector.log(limit=100)
    assert everything[-2:] == newest
    assert queue.inspector.log(everything[0].entry_id, 2) == everything[1:3]
    assert queue.inspector.log(everything[-1].entry_id) == []


def test_foreign_entries_of_the_log_are_shown_unchanged(queue: Handle):
    queue.redis.xadd(queue.keys.log, {"what": "theirs"})

    (entry,) = queue.inspector.log()

    assert (entry.move, entry.fields) == ("", {"what": "theirs"})
    assert entry.at_ms > 0


@pytest.mark.parametrize("after", ["", "x", "1-2-3", "+", 7])
def test_an_invalid_entry_is_refused(queue: Handle, after: Any):
    with pytest.raises(UsageError, match="entry_id"):
        queue.inspector.log(after)


# -- a worker


def test_a_stop_request_is_noted_in_the_workers_hash_and_logged_once(queue: Handle, clock: Clock):
    queue.execute([heartbeat.beat(queue.settings, "w-1", {"pid": 7})])

    assert queue.inspector.stop_worker("w-1") is True
    assert queue.inspector.stop_worker("w-1") is True

    assert queue.list_workers()[0].is_stopping
    (answer,) = queue.execute([heartbeat.beat(queue.settings, "w-1", {"pid": 7})])
    assert answer.is_asked
    assert [(entry.move, entry.id) for entry in queue.inspector.log()] == [("stop worker", "w-1")]


def test_a_worker_that_is_not_there_cannot_be_stopped(queue: Handle):
    assert queue.inspector.stop_worker("nobody") is False

    assert queue.redis.exists(queue.keys.worker("nobody")) == 0
    assert queue.inspector.log() == []


@pytest.mark.parametrize("name", ["", "a:b", "*", "x" * 129, None])
def test_what_can_be_no_workers_id_is_refused(queue: Handle, name: Any):
    with pytest.raises(UsageError, match="worker id"):
        queue.inspector.stop_worker(name)
