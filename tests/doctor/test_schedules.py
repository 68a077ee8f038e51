"""Damage to schedules, done with a plain client: what the doctor says of it."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from schedq import Queue
from tests.doctor.conftest import Examine

HOUR_MS = 3_600_000


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture
def yearly(mail: Queue) -> Queue:
    """The queue with a schedule whose next slot is far away."""
    mail.schedules.upsert("report", cron="0 0 1 1 *", task="report")
    return mail


def test_schedules_that_are_as_they_should_be_want_nothing(tended: Queue, diagnosis: Examine):
    tended.schedules.upsert("report", cron="0 0 1 1 *", payload={"kind": "report"})
    tended.schedules.upsert("idle", cron="0 0 1 1 *", payload=1)
    tended.schedules.pause("idle")

    assert diagnosis().codes == set()


def test_schedules_without_a_promoter_are_reported(yearly: Queue, diagnosis: Examine):
    assert diagnosis().codes == {"no-promoter"}

    yearly.schedules.pause("report")
    assert diagnosis().codes == set()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"cron": "61 * * * *"}, "61"),
        ({"overlap": "sometimes"}, "overlap must be one of"),
        ({"tz": "Europe/Atlantis"}, "Atlantis"),
        ({"payload": ""}, "it has no payload"),
        ({"error": "parked by a promoter"}, "parked by a promoter"),
    ],
    ids=["expression", "policy", "zone", "payload", "parked"],
)
def test_an_invalid_definition_is_found_with_its_problem(
    fields: dict[str, str], reason: str, yearly: Queue, diagnosis: Examine, client: Any
):
    client.hset("queue:mail:schedule:report", mapping=fields)

    (example,) = diagnosis("mail")["schedule-damaged"].examples

    assert example.startswith("report: ")
    assert reason in example


def test_a_schedule_without_a_definition_is_found(yearly: Queue, diagnosis: Examine, client: Any):
    client.delete("queue:mail:schedule:report")

    assert diagnosis()["schedule-undefined"].examples == ("report",)


def test_an_unlisted_definition_is_found_and_storing_it_again_repairs_it(
    yearly: Queue, diagnosis: Examine, client: Any
):
    client.zrem("queue:mail:schedules", "report")

    assert diagnosis("mail")["schedule-unlisted"].examples == ("report",)

    yearly.schedules.upsert("report", cron="0 0 1 1 *", task="report")
    assert diagnosis("mail").codes == {"no-promoter"}


def test_a_schedule_that_has_lost_its_next_slot_is_found_and_a_pause_mends_it(
    yearly: Queue, diagnosis: Examine, client: Any
):
    client.zadd("queue:mail:schedules", {"report": float("inf")})

    assert diagnosis()["schedule-stuck"].examples == ("report",)

    assert yearly.schedules.pause("report")
    assert yearly.schedules.resume("report")
    assert diagnosis().codes == {"no-promoter"}


@pytest.mark.parametrize("kind", ["schedule", "slots"])
def test_a_key_of_a_wrong_type_is_found(kind: str, yearly: Queue, diagnosis: Examine, client: Any):
    key = "queue:mail:schedule:report" + (":slots" if kind == "slots" else "")
    client.delete(key)
    client.set(key, "x")

    code = "slots-wrong-type" if kind == "slots" else "schedule-wrong-type"
    assert diagnosis()[code].examples == ("report",)


def test_a_slot_history_without_a_schedule_is_found(yearly: Queue, diagnosis: Examine, client: Any):
    client.rpush("queue:mail:schedule:gone:slots", "{}")

    assert diagnosis()["slots-left"].examples == ("gone",)


@pytest.mark.parametrize("schedule_id", ["a b", "x" * 49, "a:b"])
def test_an_id_that_breaks_the_rule_is_found(schedule_id: str, yearly: Queue, diagnosis: Examine, client: Any):
    client.hset(f"queue:mail:schedule:{schedule_id}", mapping={"every_ms": 60_000, "payload": "1"})
    client.zadd("queue:mail:schedules", {schedule_id: now_ms() + HOUR_MS})

    assert diagnosis()["schedule-bad-id"].examples == (schedule_id,)


def test_a_slot_that_was_not_fired_is_found(yearly: Queue, diagnosis: Examine, client: Any):
    client.zadd("queue:mail:schedules", {"report": now_ms() - 3 * HOUR_MS - 60_000})

    found = diagnosis()["slot-overdue"]

    assert (found.level, found.says) == ("error", "1 schedule was due more than 5 s ago, the first one 3 h")


def test_a_slot_that_waits_for_the_last_run_is_not_overdue(yearly: Queue, diagnosis: Examine, client: Any):
    yearly.schedules.upsert("queued", cron="0 0 1 1 *", payload=1, overlap="queue_one")
    last = yearly.schedules.trigger("queued")
    client.zadd("queue:mail:schedules", {"queued": now_ms() - HOUR_MS})
    assert "slot-overdue" not in diagnosis().codes

    client.hset(f"queue:mail:job:{last}", "status", "completed")
    assert diagnosis()["slot-overdue"].examples == ("queued",)


@pytest.mark.parametrize("score", [1.8e9, -1, 1.8e15], ids=["seconds", "before the epoch", "microseconds"])
def test_an_invalid_slot_time_is_found(score: float, yearly: Queue, diagnosis: Examine, client: Any):
    client.zadd("queue:mail:schedules", {"report": score})

    assert diagnosis()["slot-never"].examples == ("report",)

    assert yearly.schedules.pause("report")
    assert yearly.schedules.resume("report")
    assert diagnosis().codes == {"no-promoter"}


def test_a_schedule_whose_task_no_live_worker_has_is_found(tended: Queue, diagnosis: Examine):
    tended.schedules.upsert("report", cron="0 0 1 1 *", task="report")

    assert diagnosis()["schedule-no-task"].examples == ("report: report",)


def test_ended_and_long_paused_schedules_are_notes(mail: Queue, diagnosis: Examine, client: Any):
    past = datetime(2020, 1, 1, tzinfo=UTC)
    mail.schedules.upsert("past", every=60, payload=1, start=past, end=past.replace(month=2))
    mail.schedules.upsert("rests", every=60, payload=1)
    mail.schedules.pause("rests")
    assert diagnosis().notes.isdisjoint({"schedule-paused"})

    client.hset("queue:mail:schedule:rests", "paused_at_ms", now_ms() - 2 * HOUR_MS)

    found = diagnosis()
    assert found["schedule-ended"].examples == ("past",)
    assert found["schedule-paused"].examples == ("rests",)
    assert found.codes == set()


def test_a_schedule_repaired_during_the_examination_is_not_reported(
    yearly: Queue, diagnosis: Examine, client: Any, monkeypatch: pytest.MonkeyPatch
):
    client.zrem("queue:mail:schedules", "report")
    monkeypatch.setattr(
        "schedq.doctor.examination.sleep",
        lambda _: client.zadd("queue:mail:schedules", {"report": now_ms() + HOUR_MS}),
    )

    assert "schedule-unlisted" not in diagnosis("mail").codes


def test_of_many_schedules_the_earliest_are_examined_and_that_is_reported(mail: Queue, diagnosis: Examine, client: Any):
    for number in range(30):
        mail.schedules.upsert(f"s{number}", every=3600 + number, payload=1)
    first, last = client.zrange("queue:mail:schedules", 0, 0) + client.zrange("queue:mail:schedules", -1, -1)
    client.hset(f"queue:mail:schedule:{first}", "overlap", "sometimes")

    found = diagnosis("mail", sample=2)

    assert found["schedule-damaged"].examples[0].startswith(first)
    assert any(re.search(" only [2-4] of 30 schedules were read", words) for words in found.report.limits)
    client.hset(f"queue:mail:schedule:{last}", "overlap", "sometimes")
    assert diagnosis("mail")["schedule-damaged"].says == "2 schedules that can't fire"


def test_the_examination_changes_no_schedule(yearly: Queue, diagnosis: Examine, client: Any):
    yearly.schedules.upsert("broken", every=60, payload=1)
    client.hset("queue:mail:schedule:broken", "every_ms", "soon")
    before = {key: client.dump(key) for key in client.scan_iter("queue:mail:schedule*")}

    diagnosis()

    assert {key: client.dump(key) for key in client.scan_iter("queue:mail:schedule*")} == before
