"""Storing, reading, pausing, triggering, deleting and backfilling schedules, with both clients."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from schedq import ArgumentsError, Conflict, Fixed, UsageError
from schedq.testing import as_job
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.schedules.scenes import BEGIN_MS, HOUR, MINUTE, account, acts, complete_all, ids, jobs, slots_ms, tick


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def test_a_schedule_makes_a_job_of_each_slot(queue: Handle, clock: Clock):
    assert queue.schedules.upsert("report", every=MINUTE, task="report", args=["x"], kwargs={"n": 1}) == "created"

    for _ in range(3):
        clock.pass_time(MINUTE)
        tick(queue)

    assert jobs(queue) == ids("report", 1, 2, 3)
    assert queue.get_job(ids("report", 1)[0]).payload == {"task": "report", "args": ["x"], "kwargs": {"n": 1}}
    assert account(queue, "report") == [(1, "fired", 1), (2, "fired", 1), (3, "fired", 1)]
    assert complete_all(queue) == ids("report", 1, 2, 3)


def test_before_its_slot_nothing_is_fired(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=None)
    clock.pass_time(MINUTE - 0.001)

    assert tick(queue).jobs == 0
    clock.pass_time(0.001)
    assert tick(queue).jobs == 1


def test_a_fired_job_is_recorded_as_an_enqueued_one_is(queue: Handle, clock: Clock):
    options = {"max_attempts": 7, "backoff": Fixed(5), "timeout": 9}
    queue.schedules.upsert("report", every=MINUTE, payload={"n": 1}, **options)
    clock.pass_time(MINUTE)
    tick(queue)
    theirs = queue.enqueue({"n": 1}, run_at=clock(), **options)

    fired, enqueued = queue.fields(ids("report", 1)[0]), queue.fields(theirs)
    assert fired.pop("schedule") == "report"
    assert fired.pop("slot_ms") == str(slots_ms(1)[0])
    assert fired | {"id": theirs} == enqueued
    with as_job(ids("report", 1)[0]) as job:
        assert (job.schedule, job.slot) == ("report", datetime.fromtimestamp(slots_ms(1)[0] / 1000, UTC))


def test_a_stored_schedule_can_be_read(queue: Handle, clock: Clock):
    queue.schedules.upsert("nightly", cron="0 3 * * *", tz="Europe/Berlin", task="clean", overlap="skip", owner="shop")

    record = queue.schedules.get("nightly")

    assert (record.state, record.cron, record.tz, record.owner) == ("active", "0 3 * * *", "Europe/Berlin", "shop")
    assert record.next_slot_ms == int(datetime(2027, 1, 16, 2, tzinfo=UTC).timestamp() * 1000)
    assert "Berlin" in record.words
    stored = queue.redis.hgetall(queue.keys.schedule("nightly"))
    assert stored["cron"] == "0 3 * * *"
    assert stored["overlap"] == "skip"
    assert stored["payload"] == '{"task":"clean"}'
    assert queue.schedules.get("another") is None


def test_lists_begin_with_the_earliest_next_slot(queue: Handle):
    for name, every in (("slow", HOUR), ("quick", MINUTE), ("paused", MINUTE)):
        queue.schedules.upsert(name, every=every, payload=1)
    queue.schedules.pause("paused")

    assert [record.id for record in queue.schedules.list()] == ["quick", "slow", "paused"]
    assert [record.id for record in queue.schedules.list(1, 1)] == ["slow"]
    assert [record.state for record in queue.schedules.list()] == ["active", "active", "paused"]


def test_next_slots_are_local_times(queue: Handle):
    queue.schedules.upsert("nightly", cron="0 3 * * *", tz="Europe/Berlin", payload=1)

    slots = queue.schedules.next_slots("nightly", 2)

    assert slots == [datetime(2027, 1, day, 3, tzinfo=ZoneInfo("Europe/Berlin")) for day in (16, 17)]


def test_next_slots_end_with_the_last_run(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1, max_runs=3)
    clock.pass_time(MINUTE)
    tick(queue)

    assert [slot.timestamp() * 1000 for slot in queue.schedules.next_slots("report", 6)] == slots_ms(2, 3)


def test_a_paused_schedule_has_no_slots_until_it_is_resumed(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1)
    assert queue.schedules.pause("report") is True
    assert queue.schedules.pause("report") is False
    clock.pass_time(3.5 * MINUTE)

    assert tick(queue).jobs == 0
    assert queue.schedules.resume("report") is True
    assert queue.schedules.resume("report") is False
    clock.pass_time(MINUTE)
    tick(queue)

    assert jobs(queue) == ids("report", 4)
    assert account(queue, "report") == [(1, "skipped", 3), (4, "fired", 1)]
    assert queue.schedules.get("report").slots[-1].why == "paused"


def test_a_trigger_makes_a_job_now_that_no_slot_can_collide_with(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload={"n": 1}, max_runs=1, max_attempts=9)
    queue.schedules.pause("report")

    job_id = queue.schedules.trigger("report")

    assert not job_id.removeprefix("report-").isdigit()
    assert queue.get_job(job_id).payload == {"n": 1}
    assert queue.get_job(job_id).max_attempts == 9
    assert queue.schedules.get("report").runs == 0
    assert queue.schedules.trigger("another") is None


def test_deleting_a_schedule_keeps_its_jobs(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1)
    clock.pass_time(MINUTE)
    tick(queue)

    assert queue.schedules.delete("report") is True
    assert queue.schedules.delete("report") is False

    assert not [name for name in queue.state().keys if name.startswith("schedule")]
    assert jobs(queue) == ids("report", 1)


def test_a_past_time_is_filled_in_once_and_at_a_rate(queue: Handle, clock: Clock):
    clock.pass_time(10 * MINUTE)
    queue.schedules.upsert("report", every=MINUTE, payload=1)

    counts = [queue.schedules.backfill("report", clock() - 5 * MINUTE, clock() - MINUTE, rate=2) for _ in range(2)]

    assert counts == [5, 5]
    assert jobs(queue) == ids("report", 5, 6, 7, 8, 9)
    due = [job.run_at_ms - clock.now_ms for job in queue.list_delayed()]
    assert due == [500, 1000, 1500, 2000]
    assert acts(queue).count("schedule backfill report") == 2


def test_a_backfill_gives_each_job_its_time_to_begin(queue: Handle, clock: Clock):
    clock.pass_time(10 * MINUTE)
    queue.schedules.upsert("report", every=MINUTE, payload=1, expires=1)

    assert queue.schedules.backfill("report", clock() - 3 * MINUTE, clock() - MINUTE, rate=0.1) == 3

    for slot in (7, 8, 9):
        assert [queue.claim(0).id] == ids("report", slot)
        clock.pass_time(10.9 if slot == 7 else 10)
    assert queue.stats()["cancelled_total"] == 0


def test_a_backfill_skips_fired_slots(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1)
    clock.pass_time(MINUTE)
    tick(queue)
    complete_all(queue)

    queue.schedules.backfill("report", clock() - 1, clock())

    assert queue.places() == {"completed": ids("report", 1)}


@pytest.mark.parametrize(
    ("start", "end", "says"), [(-(10**6), 0, "more than 100,000"), (5, 90, "no past slot"), (10, -10, "no past slot")]
)
def test_a_backfill_is_refused_as_a_whole(queue: Handle, clock: Clock, start: float, end: float, says: str):
    queue.schedules.upsert("report", every=1, payload=1)
    queue.schedules.pause("report")

    with pytest.raises(UsageError, match=says):
        queue.schedules.backfill("report", clock() + start, clock() + end)
    with pytest.raises(UsageError, match="rate"):
        queue.schedules.backfill("report", clock() - 5, clock(), rate=0)
    assert jobs(queue) == []


def test_every_act_is_in_the_log_once(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1)
    queue.schedules.upsert("report", every=MINUTE, payload=1)
    queue.schedules.upsert("report", every=MINUTE, payload=2)
    queue.schedules.pause("report")
    queue.schedules.pause("report")
    queue.schedules.resume("report")
    queue.schedules.trigger("report")
    queue.schedules.delete("report")
    queue.schedules.delete("report")

    done = ("create", "change", "pause", "resume", "trigger", "delete")
    assert acts(queue) == [f"schedule {act} report" for act in done]


def test_a_purge_keeps_schedules(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1)
    clock.pass_time(MINUTE)
    tick(queue)

    queue.purge()
    clock.pass_time(MINUTE)
    tick(queue)

    assert jobs(queue) == ids("report", 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "cron expression or every="),
        ({"cron": "0 3 * * *", "every": 5}, "either a cron expression or every="),
        ({"cron": ""}, "empty"),
        ({"cron": 5}, "cron must be a text"),
        ({"cron": "61 * * * *"}, "61"),
        ({"cron": "0 0 30 2 *"}, "30 2"),
        ({"every": 0.5}, "at least 1 s"),
        ({"every": "5m"}, "every must be seconds"),
        ({"every": True}, "every must be seconds"),
        ({"every": MINUTE, "tz": "Mars/Olympus"}, "Mars"),
        ({"cron": "@daily", "tz": UTC}, "tz must be a text"),
        ({"every": MINUTE, "overlap": "maybe"}, "overlap"),
        ({"every": MINUTE, "catch_up": "some"}, "catch_up"),
        ({"every": MINUTE, "gap": "x"}, "gap"),
        ({"every": MINUTE, "fold": []}, "fold"),
        ({"every": MINUTE, "window": -1}, "window"),
        ({"every": MINUTE, "jitter": timedelta(days=2)}, "jitter"),
        ({"every": MINUTE, "max_runs": 0}, "max_runs"),
        ({"every": MINUTE, "version": "2"}, "version"),
        ({"every": MINUTE, "start": 10, "end": 5}, "end is before start"),
        ({"every": MINUTE, "start": datetime(2027, 1, 1)}, "timezone-aware"),
        ({"every": MINUTE, "color": "red"}, "color"),
        ({"every": MINUTE, "task": "a"}, "task or a payload"),
        ({"every": MINUTE, "args": [1]}, "args"),
    ],
)
def test_invalid_arguments_are_refused(queue: Handle, options: dict, says: str):
    with pytest.raises(UsageError, match=says):
        queue.schedules.upsert("report", **{"payload": 1} | options)
    assert queue.state().keys == {}


@pytest.mark.parametrize("name", ["", "a:b", "x" * 49, "ä", 7])
def test_an_id_that_could_not_name_jobs_is_refused(queue: Handle, name: object):
    with pytest.raises(UsageError, match="schedule id"):
        queue.schedules.upsert(name, every=MINUTE, payload=1)
    with pytest.raises(UsageError, match="schedule id"):
        queue.schedules.pause(name)


def test_the_longest_id_names_jobs_to_the_last_year(queue: Handle, clock: Clock):
    name = "x" * 48
    clock.now = datetime(9999, 12, 31, 23, 58, tzinfo=UTC).timestamp()
    queue.schedules.upsert(name, every=MINUTE, payload=1)
    clock.pass_time(MINUTE)

    assert tick(queue).jobs == 1
    assert len(jobs(queue)[0]) == 64


def test_a_slot_whose_id_another_job_has_is_skipped(queue: Handle, clock: Clock):
    queue.schedules.upsert("report", every=MINUTE, payload=1)
    queue.enqueue("something else", job_id=ids("report", 1)[0])
    clock.pass_time(MINUTE)

    assert tick(queue).jobs == 0
    assert account(queue, "report") == [(1, "skipped", 1)]
    with pytest.raises(Conflict):
        queue.schedules.backfill("report", BEGIN_MS / 1000, clock())


def test_each_action_is_one_entry_of_the_log_and_an_action_without_effect_is_none(queue: Handle, clock: Clock):
    verbs = queue.schedules
    for payload in (1, 1, 2):
        verbs.upsert("report", every=MINUTE, payload=payload)
    clock.pass_time(2 * MINUTE)
    for act in (verbs.pause, verbs.resume):
        assert [act("report"), act("report")] == [True, False]
    job_id = verbs.trigger("report")
    verbs.backfill("report", clock() - MINUTE, clock())
    assert [verbs.delete("report"), verbs.delete("report")] == [True, False]
    assert verbs.trigger("report") is None

    log = [entry for _, entry in queue.redis.xrange(queue.keys.log) if entry["id"] == "report"]
    done = ("create", "change", "pause", "resume", "trigger", "backfill", "delete")
    assert [entry["move"] for entry in log] == [f"schedule {act}" for act in done]
    assert {entry["at_ms"] for entry in log[2:]} == {str(clock.now_ms)}
    assert [log[4]["note"], log[5]["note"]] == [job_id, f"2 slots from {slots_ms(1)[0]} to {slots_ms(2)[0]}"]


def test_a_queue_that_keeps_no_log_puts_no_act_down(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, log_size=0)
    queue.schedules.upsert("report", every=MINUTE, payload=1)
    queue.schedules.trigger("report")

    assert acts(queue) == []


def test_an_update_changes_what_is_given_and_keeps_the_rest(queue: Handle, clock: Clock):
    own = {"tz": "Europe/Berlin", "overlap": "skip", "max_attempts": 3, "headers": {"tenant": "acme"}}
    queue.schedules.upsert("report", cron="0 3 * * *", task="report", args=[17], kwargs={"n": 1}, **own)
    queue.schedules.pause("report")
    before = queue.schedules.get("report").fields

    assert queue.schedules.update("report", max_attempts=None, kwargs={"n": 2}) == "changed"
    assert queue.schedules.update("report", every=MINUTE) == "changed"
    assert queue.schedules.update("report", every=MINUTE) == "unchanged"

    record = queue.schedules.get("report")
    kept = ("tz", "overlap", "headers", "created_at_ms", "paused_at_ms")
    assert [record.fields[name] for name in kept] == [before[name] for name in kept]
    assert (record.cron, record.every_ms, record.state) == ("", MINUTE * 1000, "paused")
    assert json.loads(record.fields["payload"]) == {"task": "report", "args": [17], "kwargs": {"n": 2}}
    assert "max_attempts" not in record.fields

    queue.schedules.update("report", payload={"kind": "report"})
    for options, says in (
        ({"args": [1]}, "needs a task or a payload"),
        ({"args": [1], "payload": 1}, "one of the two"),
        ({"cron": "0 3 * * *", "every": 60}, "not both"),
        ({"cron": ""}, "every must be at least"),
        ({"owners": "shop"}, "no such option: owners"),
        ({"tz": "Nowhere"}, "Nowhere"),
    ):
        with pytest.raises(UsageError, match=says):
            queue.schedules.update("report", **options)
    with pytest.raises(UsageError, match=f"queue {queue.name} has no schedule nightly"):
        queue.schedules.update("nightly", every=60)


def test_an_update_checks_the_arguments_of_a_known_task(queue: Handle):
    queue.task(name="report")(lambda number: None)
    queue.schedules.upsert("report", every=MINUTE, task="report", args=[17])

    with pytest.raises(ArgumentsError, match="report"):
        queue.schedules.update("report", args=[17, 18])
    assert queue.schedules.update("report", args=[18]) == "changed"


def test_a_schedule_of_the_code_can_be_paused_and_triggered_before_a_worker_has_stored_it(queue: Handle, clock: Clock):
    for name in ("poll", "sync"):
        queue.every(MINUTE, id=name)(queue.task(name=name)(lambda: None))

    job_id = queue.schedules.trigger("sync")
    assert [queue.schedules.pause("poll"), queue.schedules.pause("poll"), queue.schedules.pause("pol")] == [
        True,
        False,
        False,
    ]
    queue.schedules.register()
    clock.pass_time(MINUTE)
    tick(queue)

    assert jobs(queue) == sorted([job_id, *ids("sync", 1)])


def test_a_schedule_that_will_enqueue_nothing_useful_is_logged(
    queue: Handle, clock: Clock, caplog: pytest.LogCaptureFixture
):
    queue.task(name="report")(lambda: None)

    queue.schedules.upsert("over", every=MINUTE, task="report", end=clock() - 1)
    queue.schedules.upsert("typo", every=MINUTE, task="reprot")

    assert caplog.messages == [
        f"queue {queue.name}: schedule over will never have a slot; is its end past?",
        f"queue {queue.name}: schedule typo calls the task 'reprot', which is not known here; did you mean report?",
    ]
