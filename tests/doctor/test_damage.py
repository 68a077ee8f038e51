"""Damage to a queue, done with a plain client: what the doctor says of it."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from schedq import Discard, Queue
from schedq.model import outcome
from schedq.transitions import announce
from tests.cli.scenes import claimed
from tests.doctor.conftest import Examine

NOBODY = {"no-worker", "no-promoter"}


def contents(client: Any) -> dict[str, Any]:
    return {key: client.hgetall(key) if client.type(key) == "hash" else client.dump(key) for key in client.scan_iter()}


def now_ms() -> int:
    return int(time.time() * 1000)


def test_a_healthy_queue_on_a_healthy_server_has_no_findings(tended: Queue, diagnosis: Examine):
    tended.enqueue_many(["fail", *range(20)])
    tended.enqueue(1, delay=300)

    found = diagnosis()

    assert found.codes == set()
    assert found.report.queues == ["mail"]
    assert found.report.limits == []


def test_nothing_is_changed_by_an_examination(mail: Queue, diagnosis: Examine, client: Any):
    mail.enqueue_many(range(30))
    mail.claim(0)
    before = {
        key: client.dump(key) if client.type(key) != "hash" else client.hgetall(key) for key in client.scan_iter()
    }

    diagnosis()

    assert contents(client) == before


# -- jobs that are not where they should be


@pytest.mark.parametrize("status", ["pending", "delayed", "processing", ""])
def test_a_job_in_no_place_is_an_orphan(status: str, mail: Queue, diagnosis: Examine, client: Any):
    mail.enqueue(1)
    client.hset("queue:mail:job:lost", mapping={"payload": "1", "status": status})
    if not status:
        client.hdel("queue:mail:job:lost", "status")

    found = diagnosis()

    assert found["orphan"].examples == ("lost",)
    assert "redis-cli LPUSH queue:mail:pending ID" in found["orphan"].remedy
    assert found.codes == {"no-worker", "orphan"}


def test_the_remedy_for_an_orphan_heals_it(mail: Queue, diagnosis: Examine, client: Any):
    client.hset("queue:mail:job:lost", mapping={"payload": "1", "status": "pending"})
    client.lpush("queue:mail:pending", "lost")

    assert "orphan" not in diagnosis("mail").codes
    assert mail.claim(0).id == "lost"


def test_a_lease_of_a_job_that_does_not_run_is_found(mail: Queue, diagnosis: Examine, client: Any):
    job_id = mail.enqueue(1)
    client.zadd("queue:mail:leases", {job_id: now_ms() + 5000, "gone": now_ms() + 5000})

    assert diagnosis()["lease-without-job"].examples == tuple(sorted([job_id, "gone"]))


def test_a_running_job_without_a_lease_is_found(mail: Queue, diagnosis: Examine, client: Any):
    mail.enqueue(1)
    job = claimed(mail)
    client.zrem("queue:mail:leases", job.id)

    assert diagnosis()["job-without-lease"].examples == (job.id,)


def test_a_finished_job_that_waits_is_a_stray(mail: Queue, diagnosis: Examine, client: Any):
    job_id = mail.enqueue(1)
    mail.complete(claimed(mail))
    client.lpush("queue:mail:pending", job_id)

    assert diagnosis()["stray"].examples == (job_id,)


def test_cancelled_jobs_in_a_long_queue_are_not_strays(mail: Queue, diagnosis: Examine, client: Any):
    ids = mail.enqueue_many(range(10_100))
    assert mail.cancel(ids[0]) == "cancelled"
    assert client.lpos("queue:mail:pending", ids[0]) is not None
    assert diagnosis("mail", sample=20_000).codes == {"no-worker"}

    mail.inspector.act("delete", ids[:1])  # its entry stays
    assert diagnosis("mail", sample=20_000).codes == {"no-worker"}
    assert diagnosis("mail", sample=200).codes == {"no-worker"}


def test_an_id_that_is_listed_twice_is_found(mail: Queue, diagnosis: Examine, client: Any):
    job_id = mail.enqueue(1)
    mail.enqueue(2)
    client.lpush("queue:mail:pending", job_id)

    assert diagnosis()["listed-twice"].examples == (job_id,)


def test_a_job_in_two_places_is_found(mail: Queue, diagnosis: Examine, client: Any):
    job_id = mail.enqueue(1)
    client.zadd("queue:mail:delayed", {job_id: now_ms() + 60_000})

    assert diagnosis()["in-two-places"].examples == (job_id,)


def test_an_id_without_data_is_found(mail: Queue, diagnosis: Examine, client: Any):
    job_id = mail.enqueue(1)
    client.delete(f"queue:mail:job:{job_id}")

    assert diagnosis()["no-data"].examples == (job_id,)


def test_a_failed_job_whose_record_expired_is_found(mail: Queue, diagnosis: Examine, client: Any):
    client.lpush("queue:mail:failed", "expired")

    assert diagnosis("mail")["record-gone"].examples == ("expired",)


def test_a_job_whose_key_is_not_a_hash_is_found(mail: Queue, diagnosis: Examine, client: Any):
    client.set("queue:mail:job:text", "x")
    client.lpush("queue:mail:pending", "text")

    assert diagnosis()["job-wrong-type"].examples == ("text",)


def test_an_id_that_breaks_the_rule_is_found(mail: Queue, diagnosis: Examine, client: Any):
    client.hset("queue:mail:job:a b\x1b", mapping={"payload": "1"})
    client.lpush("queue:mail:pending", "a b\x1b")

    assert diagnosis()["bad-id"].examples == ("a b\x1b",)


def test_damage_that_a_live_promoter_repairs_is_a_note(tended: Queue, diagnosis: Examine, client: Any):
    tended.pause()
    job_id = tended.enqueue(1)
    client.lpush("queue:mail:pending", job_id)

    found = diagnosis()

    assert found["listed-twice"].level == "note"
    assert found.codes == set()
    tended.resume()


def test_a_job_that_moves_during_the_examination_is_not_reported(
    mail: Queue, diagnosis: Examine, client: Any, monkeypatch: pytest.MonkeyPatch
):
    """A program of other make moves jobs in several steps; here it ends one between the two looks."""
    client.hset("queue:mail:job:late", mapping={"payload": "1", "status": "pending"})
    monkeypatch.setattr("schedq.doctor.examination.sleep", lambda _: client.lpush("queue:mail:pending", "late"))

    assert "orphan" not in diagnosis("mail").codes


# -- due times


def test_scores_in_seconds_are_found(mail: Queue, diagnosis: Examine, client: Any):
    mail.enqueue(1, delay=300)
    client.hset("queue:mail:job:soon", mapping={"payload": "1"})
    client.zadd("queue:mail:delayed", {"soon": time.time() + 60})

    found = diagnosis()

    assert found["due-in-seconds"].examples == ("soon",)
    assert found["due-in-seconds"].level == "error"
    assert "overdue" not in found.codes


@pytest.mark.parametrize("score", [1.8e15, 1.8e18, float("inf")], ids=["microseconds", "nanoseconds", "infinity"])
def test_scores_beyond_all_time_are_found(score: float, mail: Queue, diagnosis: Examine, client: Any):
    client.hset("queue:mail:job:never", mapping={"payload": "1"})
    client.zadd("queue:mail:delayed", {"never": score})

    assert diagnosis()["due-never"].examples == ("never",)


def test_due_jobs_without_a_promoter_are_overdue(mail: Queue, diagnosis: Examine, client: Any):
    ids = mail.enqueue_many([1, 2], delay=60)
    client.zadd("queue:mail:delayed", {ids[0]: now_ms() - 7_300_000})

    found = diagnosis()

    assert found["overdue"].level == "error"
    assert found["overdue"].says == "1 delayed job was due more than 5 s ago, the first one 2 h"


# -- who is there


def test_jobs_without_a_worker_are_reported(mail: Queue, diagnosis: Examine):
    mail.enqueue(1)
    mail.enqueue(1, delay=60)

    found = diagnosis()

    assert found.codes == NOBODY
    assert found["no-worker"].says.endswith("; 1 pending, 1 delayed, 0 running")


def test_a_queue_without_jobs_needs_no_worker(mail: Queue, diagnosis: Examine):
    mail.enqueue(1)
    mail.complete(claimed(mail))

    found = diagnosis()

    assert found.codes == set()
    assert found.notes >= NOBODY


def test_a_long_pause_is_reported(mail: Queue, diagnosis: Examine, client: Any):
    mail.enqueue(1)
    mail.pause()
    assert "paused" in diagnosis().notes

    client.set("queue:mail:paused", now_ms() - 3 * 86_400_000)

    assert diagnosis()["paused-long"].says == "the queue has been paused for 3 d; 1 pending"


def test_a_paused_task_is_reported_with_its_remedy(mail: Queue, diagnosis: Examine, client: Any):
    mail.pause(task="send")
    assert "task-paused" in diagnosis().notes

    client.hset("queue:mail:paused_tasks", "send", now_ms() - 3 * 86_400_000)
    client.hset("queue:mail:paused_tasks", "resize", now_ms())
    found = diagnosis()

    assert found["task-paused-long"].says == "the task send has been paused for 3 d"
    assert found["task-paused-long"].examples == ("send",)
    assert found["task-paused-long"].remedy == "schedq resume mail --task NAME"
    assert found["task-paused"].examples == ("resize",)


def test_several_paused_tasks_are_one_finding(mail: Queue, diagnosis: Examine, client: Any):
    client.hset("queue:mail:paused_tasks", mapping={"send": now_ms() - 7_200_000, "resize": "?"})

    found = diagnosis("mail")["task-paused-long"]

    assert found.says == "2 tasks are paused, the first one since an unknown time"
    assert found.examples == ("resize", "send")


def test_held_jobs_are_where_they_should_be(mail: Queue, diagnosis: Examine, client: Any):
    ids = [mail.enqueue({"task": "send"}) for _ in range(3)]
    mail.pause(task="send")
    assert mail.claim(0) is None
    assert client.zcard("queue:mail:held") == 3

    found = diagnosis()

    assert found.codes == {"no-worker"}
    assert found["no-worker"].says.endswith("; 3 pending, 0 delayed, 0 running")

    client.lpush("queue:mail:pending", ids[0])
    assert diagnosis()["listed-twice"].examples == (ids[0],)


def test_held_entries_without_a_job_are_found(mail: Queue, diagnosis: Examine, client: Any):
    job_id = mail.enqueue({"task": "send"})
    client.zadd("queue:mail:held", {"nothing": 8589934592 * 1.5})
    client.zadd("queue:mail:held", {job_id: 8589934592 * 1.5 + 1})
    client.delete("queue:mail:pending")
    client.hset(f"queue:mail:job:{job_id}", "status", "completed")

    found = diagnosis()

    assert found["no-data"].examples == ("nothing",)
    assert found["stray"].examples == (job_id,)


def test_broken_notes_are_reported_with_their_reasons(mail: Queue, diagnosis: Examine, client: Any):
    client.lpush("queue:mail:pending", "nothing")
    mail.claim(0)

    found = diagnosis("mail")

    assert found["broken-notes"].examples == ("nothing: its data is gone",)
    assert "schedq jobs mail --state broken" in found["broken-notes"].remedy


# -- keys, settings, histories


@pytest.mark.parametrize(
    "name",
    [
        "pending",
        "processing",
        "completed",
        "failed",
        "cancelled",
        "broken",
        "delayed",
        "leases",
        "wake",
        "stats",
        "log",
        "settings",
        "workers",
        "promoter",
        "paused",
        "held",
        "lanes",
        "paused_tasks",
        "unique_keys",
        "gates",
        "open_gates",
        "resting",
        "gate_holds",
        "gate_turns",
    ],
)
def test_a_key_of_a_wrong_type_is_named(name: str, mail: Queue, diagnosis: Examine, client: Any):
    mail.enqueue(1)
    client.delete(f"queue:mail:{name}")
    client.sadd(f"queue:mail:{name}", "x")

    found = diagnosis("mail")

    assert found["wrong-type"].examples == (f"queue:mail:{name}",)
    assert found["wrong-type"].says.startswith(f"queue:mail:{name} is a set, not a ")
    assert not found.codes & {"orphan", "record-unlisted"}


def test_a_marker_of_a_wrong_type_is_named_if_a_worker_waits_for_it(tended: Queue, diagnosis: Examine, client: Any):
    for name in ("ok", "unused"):
        client.sadd(f"queue:mail:wake:{name}", "x")
    client.hset(f"queue:mail:worker:{client.zrange('queue:mail:workers', 0, 0)[0]}", "tasks", '["ok", "send"]')

    found = diagnosis()

    assert found["wrong-type"].examples == ("queue:mail:wake:ok",)
    assert found["wrong-type"].says == "queue:mail:wake:ok is a set, not a zset"


def test_a_task_that_no_worker_has_is_named(mail: Queue, diagnosis: Examine):
    job_id = mail.enqueue({"task": "resize"})
    job = mail.claim(0)
    assert job is not None
    mail.settle(outcome.unknown(job, "this worker has no task 'resize'", mail.settings, is_known_elsewhere=True))

    found = diagnosis("mail")

    assert re.fullmatch(
        r"1 job waits for the task 'resize', which no worker that took it had in the last [\d.,]+ m?s",
        found["unknown-task"].says,
    )
    assert found["unknown-task"].examples == (job_id,)


def test_settings_that_make_no_sense_are_named(mail: Queue, diagnosis: Examine, client: Any):
    mail._ask(announce.announce(mail.settings))
    assert "settings-unreadable" not in diagnosis("mail").codes

    client.hset("queue:mail:settings", mapping={"visibility_ms": "soon", "later": "unknown to this release"})

    assert diagnosis("mail")["settings-unreadable"].says == "the setting visibility_ms is stored as 'soon'"


def test_a_worker_with_different_settings_is_named(tended: Queue, diagnosis: Examine, client: Any):
    assert diagnosis().codes == set()

    client.hset("queue:mail:settings", "failed_history", "7")

    found = diagnosis()
    assert found["settings-disagree"].says == "failed_history is stored as 7, but 1 live worker uses 10000"
    assert found["settings-disagree"].examples == tuple(client.zrange("queue:mail:workers", 0, -1))


def test_a_lease_longer_than_the_settings_allow_is_reported(mail: Queue, diagnosis: Examine, client: Any):
    mail.enqueue(1)
    job = claimed(mail)
    client.zadd("queue:mail:leases", {job.id: now_ms() + 3_600_000})

    assert "lease-too-long" in diagnosis().codes


def test_failed_jobs_that_schedq_lets_expire_are_not_reported(mail: Queue, diagnosis: Examine):
    mail.enqueue(1, failed_ttl=60)
    mail.fail(claimed(mail), Discard("no"))

    assert "failed-expire" not in diagnosis().codes


def test_traces_of_guide_workers_in_histories_are_reported(mail: Queue, diagnosis: Examine, client: Any):
    for job_id in mail.enqueue_many(range(60)):
        mail.claim(0)
        client.hset(f"queue:mail:job:{job_id}", mapping={"status": "failed", "last_error": "theirs"})
        client.hdel(f"queue:mail:job:{job_id}", "claim_token")
        client.zrem("queue:mail:leases", job_id)
        client.lrem("queue:mail:processing", 1, job_id)
        client.expire(f"queue:mail:job:{job_id}", 300)
        client.lpush("queue:mail:failed", job_id)
        client.ltrim("queue:mail:failed", 0, 49)
        client.hincrby("queue:mail:stats", "failed_total", 1)

    found = diagnosis()

    assert found.codes == {"failed-expire", "history-cut", "record-unlisted"}
    assert "foreign-workers" in found.notes
    assert found["failed-expire"].says == "50 failed records will expire"
    assert found["history-cut"].says == "failed lists only 50 of 60 jobs"
    assert found["record-unlisted"].says.startswith("10 ")


@pytest.mark.parametrize(("kept_s", "level"), [(40, "warnings"), (1200, "notes"), (3700, "nothing")])
def test_results_that_are_deleted_early_are_reported(
    mail: Queue, diagnosis: Examine, client: Any, kept_s: int, level: str
):
    client.hset("queue:mail:settings", mapping={"completed_history": 20, "completed_ttl": 3600})
    for _ in range(25):
        mail.enqueue(1)
        mail.complete(claimed(mail))
    client.ltrim("queue:mail:completed", 0, 19)
    client.hset("queue:mail:stats", "trimmed_total", 5)
    oldest = client.lindex("queue:mail:completed", -1)
    client.hset(f"queue:mail:job:{oldest}", "completed_at_ms", now_ms() - 1000 * kept_s)

    found = diagnosis()

    assert ("results-trimmed" in found.codes, "results-trimmed" in found.notes) == (
        level == "warnings",
        level == "notes",
    )
    if level == "warnings":
        assert found["results-trimmed"].says.endswith("before completed_ttl (3600 s) is over: 5 so far")
        assert found["results-trimmed"].remedy == "raise completed_history, or lower completed_ttl"


def test_a_clock_that_went_back_shows_in_the_audit_stream(mail: Queue, diagnosis: Examine, client: Any):
    client.xadd("queue:mail:log", {"move": "completed"}, id=f"{now_ms() + 10_900_000}-0")

    assert diagnosis("mail")["clock-went-back"].says.startswith("the last entry of the audit stream is 3 h in the ")


# -- names


def test_names_that_schedq_refuses_are_reported(diagnosis: Examine, client: Any):
    client.lpush("queue:no name:pending", "1")
    client.zadd("queue:a:b:delayed", {"1": now_ms()})
    client.lpush("queue:{mail}:pending", "1")

    found = diagnosis()

    assert found["name-invalid"].examples == ("a:b", "no name")
    assert found["name-braced"].examples == ("{mail}",)


def test_names_that_look_alike_are_reported(tended: Queue, diagnosis: Examine, client: Any):
    client.lpush("queue:Mail:pending", "1")
    client.hset("queue:Mail:job:1", "payload", "1")

    found = diagnosis()

    assert found["names-alike"].level == "warning"
    assert found["names-alike"].says == "queues Mail, mail look alike; jobs wait in Mail, whose workers are at mail"


def test_a_queue_of_other_programs_is_examined_without_being_named(diagnosis: Examine, client: Any):
    client.hset("queue:theirs:job:1", "payload", "1")
    client.lpush("queue:theirs:pending", "1", "1")

    found = diagnosis()

    assert found.report.queues == ["theirs"]
    assert found["listed-twice"].queue == "theirs"


def test_a_job_named_like_a_place_does_not_count_as_a_queue(mail: Queue, diagnosis: Examine):
    mail.enqueue(1, job_id="pending")
    mail.enqueue(1, job_id="delayed")

    found = diagnosis()

    assert found.report.queues == ["mail"]
    assert found.codes == {"no-worker"}
