"""Groups: each end of a child counts once, whoever tells it, and none of a group is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from schedq import Discard, NewJob
from schedq.inspect.bulk import purge_page
from schedq.model.groups import GroupDefinition, call_line
from schedq.model.lifecycle import FINISHED, MOVES, NOWHERE
from schedq.model.placeholder import MARKER
from schedq.model.records import Settlement
from schedq.model.runs import RunLost
from schedq.schedules.fire import DefinitionCache, fire_due
from schedq.transitions import Operation, groups, settle, unwrap
from scripts.tools.crashes.inside import cut
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.groups import Groups
from tests.transitions.scenes import one_door

SUM = call_line((), '{"task":"sum","args":[' + MARKER + "]}")
ALERT = call_line((), '{"task":"alert"}')

pytestmark = one_door


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock, max_attempts=1)


def definition(**given: Any) -> GroupDefinition:
    return GroupDefinition("b", "g1", **{"head": '{"task":"t"', "tail": "}", "then": SUM, "otherwise": ALERT, **given})


def fill(queue: Handle, count: int = 3, *, close: bool = True, **given: Any) -> list[str]:
    items = [f',"args":[{n}]' for n in range(count)]
    (found,) = queue.execute([groups.fill(queue.settings, definition(**given), items, 0, close=close)])
    assert found.total == count
    return [f"b-{n}-g1" for n in range(count)]


def look(queue: Handle) -> Any:
    return queue.drive(groups.progress(queue.settings, "b"))


def counts(queue: Handle) -> tuple[str, int, int]:
    found = look(queue)
    return found.status, found.completed, found.failed


def advance(queue: Handle) -> None:
    queue.drive(groups.advance_all(queue.settings))


def finish(queue: Handle) -> list[Any]:
    """Run everything; returns the payloads that ran."""
    ran = []
    while (job := queue.claim(0)) is not None:
        ran.append(job.payload)
        queue.complete(job, 1)
    return ran


# -- every way in which a job can end


def broken_payload(queue: Handle, clock: Clock, job_id: str) -> None:
    queue.redis.hdel(queue.keys.job(job_id), "payload")
    assert queue.claim(0) is None


def lost_lease(queue: Handle, clock: Clock, job_id: str) -> None:
    assert queue.claim(0).id == job_id
    clock.pass_time(11)
    queue.reclaim_stuck()


def stopped(queue: Handle, clock: Clock, job_id: str) -> None:
    job = queue.claim(0)
    queue.cancel(job_id)
    queue.fail(job, "stopped")


def schedule_cancels(queue: Handle, clock: Clock, job_id: str) -> None:
    queue.schedules.upsert("report", every=60, payload=1, overlap="cancel_running")
    queue.redis.hset(queue.keys.schedule("report"), "last_job_id", job_id)
    clock.pass_time(61)
    queue.drive(fire_due(queue.settings, DefinitionCache()))


def purged(queue: Handle, clock: Clock, job_id: str) -> None:
    queue.execute([purge_page(queue.settings, queue.keys.pending, "pending", "", 0)])


ENDS: dict[str, Callable[[Handle, Clock, str], Any]] = {
    "complete": lambda queue, clock, job_id: queue.complete(queue.claim(0), 7),
    "fail": lambda queue, clock, job_id: queue.fail(queue.claim(0), Discard("no")),
    "stop": stopped,
    "reclaim": lost_lease,
    "refuse": broken_payload,
    "cancel": lambda queue, clock, job_id: queue.cancel(job_id),
    "cancel by a schedule": schedule_cancels,
    "delete": lambda queue, clock, job_id: queue.inspector.act("delete", [job_id]),
    "purge": purged,
}


def test_the_list_of_ends_is_complete(queue: Handle) -> None:
    ending = {move.name for move in MOVES if set(move.target) & (FINISHED | {NOWHERE}) and move.name != "trim"}

    assert {name.partition(" ")[0] for name in ENDS} == ending


@pytest.mark.parametrize("name", ENDS)
def test_each_way_to_end_is_counted(queue: Handle, clock: Clock, name: str) -> None:
    (first, *_) = fill(queue, 2, concurrency=1, tolerate=2)

    ENDS[name](queue, clock, first)
    assert Groups(queue.state()).counted("b") >= {0}
    queue.schedules.delete("report") if name == "cancel by a schedule" else None
    advance(queue)
    finish(queue)

    completed = name in ("complete",)
    assert look(queue)[2:5] == (2, 1 + completed, 1 - completed)


def test_a_child_that_expired_counts(queue: Handle, clock: Clock) -> None:
    fill(queue, 1, options=("expires", "+1000"), tolerate=1)
    clock.pass_time(2)

    assert queue.claim(0) is None
    advance(queue)

    assert counts(queue) == ("completed", 0, 1)


@pytest.mark.parametrize("end", ["retry", "snooze", "release", "reclaim"])
def test_what_is_no_end_does_not_count(queue: Handle, clock: Clock, end: str) -> None:
    fill(queue, 1, options=("max_attempts", 3))
    job = queue.claim(0)

    if end == "retry":
        queue.fail(job, "again")
    elif end == "snooze":
        queue.snooze(job, 60)
    elif end == "release":
        queue.release(job)
    else:
        clock.pass_time(11)
        queue.reclaim_stuck()

    assert counts(queue) == ("running", 0, 0)


def test_an_end_that_is_told_again_changes_nothing(queue: Handle) -> None:
    fill(queue, 2)
    job = queue.claim(0)
    end = settle.settle(queue.settings, [Settlement("complete", job.id, job.claim_token, text="1")])

    assert [queue.execute([end])[0] for _ in range(3)] == [["OK"], ["DUPLICATE"], ["DUPLICATE"]]

    assert counts(queue) == ("running", 1, 0)


# -- the outcome of scripts that an error cuts short

CUT = pytest.mark.breaks("totals", because="totals are counted at the end of a script")


def repair(queue: Handle, clock: Clock) -> None:
    """What a reclaimer mends of jobs."""
    clock.pass_time(11)
    queue.reclaim_stuck()


def cut_at(queue: Handle, operation: Operation[Any], call: int) -> bool:
    broken = operation._replace(script=cut(operation.script, call))  # type: ignore[arg-type]
    try:
        queue.redis.execute_command(*broken.command(with_source=True))
    except redis.ResponseError as error:
        assert "cut short here" in str(error)
        return True
    return False


@CUT
@pytest.mark.parametrize("then", ["sent again", "sent again after the promoter"])
def test_one_completes_one_fails_cut_at_each_call(make_queue: MakeQueue, clock: Clock, then: str) -> None:
    """The counters, the results and the call at the end are the same wherever the settlement is cut."""
    call, is_cut = 0, True
    while is_cut:
        call += 1
        queue = make_queue(clock=clock, max_attempts=1)
        fill(queue, 2)
        good, bad = queue.claim(0), queue.claim(0)
        ends = [
            Settlement("complete", good.id, good.claim_token, text='"yes"'),
            Settlement("fail", bad.id, bad.claim_token, text="no", note="no"),
        ]
        is_cut = cut_at(queue, settle.settle(queue.settings, ends), call)
        if "promoter" in then:
            advance(queue)
        queue.execute([settle.settle(queue.settings, ends)])
        advance(queue)

        assert counts(queue) == ("failed", 1, 1), call
        assert queue.drive(groups.results(queue.settings, "b", 0))[0] == [(0, "yes")], call
        assert [one.number for one in queue.drive(groups.failures(queue.settings, "b", 0, 10))] == [1], call
        assert finish(queue) == [{"task": "alert"}], call
        repair(queue, clock)
    assert call > 40


@CUT
def test_the_mark_of_one_is_not_wiped_off_by_the_next(make_queue: MakeQueue, clock: Clock) -> None:
    """One end is cut, another one is whole; then the first is sent again, and the promoter looks."""
    call, is_cut = 0, True
    while is_cut:
        call += 1
        queue = make_queue(clock=clock, max_attempts=1)
        fill(queue, 2)
        first, second = queue.claim(0), queue.claim(0)
        end = settle.settle(queue.settings, [Settlement("complete", first.id, first.claim_token, text="1")])
        is_cut = cut_at(queue, end, call)
        queue.complete(second, 2)
        queue.execute([end])
        advance(queue)

        assert counts(queue) == ("completed", 2, 0), call
        assert finish(queue) == [{"task": "sum", "args": [{"schedq:batch": "b"}]}], call
        repair(queue, clock)


@pytest.mark.breaks("totals", "places", because="a job without data is noted as broken, and made again")
def test_an_attempt_that_fails_after_a_cut_success_fails(make_queue: MakeQueue, clock: Clock) -> None:
    """The bits say what counted, and no result is left of an attempt that did not count."""
    call, is_cut = 0, True
    while is_cut:
        call += 1
        queue = make_queue(clock=clock, max_attempts=2)
        fill(queue, 1, options=("max_attempts", 2))
        job = queue.claim(0)
        end = settle.settle(queue.settings, [Settlement("complete", job.id, job.claim_token, text='"first"')])
        is_cut = cut_at(queue, end, call)
        clock.pass_time(11)
        queue.reclaim_stuck()
        again = queue.claim(0)
        if again is not None and again.id == job.id:
            queue.fail(again, Discard("no"))
        advance(queue)

        status, completed, failed = counts(queue)
        assert (status, completed, failed) in (("completed", 1, 0), ("failed", 0, 1)), call
        assert len(queue.drive(groups.results(queue.settings, "b", 0))[0]) == completed, call
        finish(queue)
        repair(queue, clock)


# -- what others did


@pytest.mark.breaks("totals", because="another program deleted a job")
def test_a_child_that_ended_untold_is_found(queue: Handle, clock: Clock) -> None:
    """A worker of an older release, or of another program, does not know of groups."""
    ids = fill(queue, 3)
    done, gone, left = ids
    queue.redis.hdel(queue.keys.job(done), "group")
    queue.complete(queue.claim(0), "theirs")
    queue.redis.hset(queue.keys.job(done), "group", "b 0 g1")
    queue.redis.lrem(queue.keys.pending, 0, gone)
    queue.redis.delete(queue.keys.job(gone))
    assert counts(queue) == ("running", 0, 0)

    clock.pass_time(11)
    advance(queue)

    assert counts(queue) == ("running", 1, 1)
    assert queue.drive(groups.results(queue.settings, "b", 0))[0] == [(0, "theirs")]
    assert queue.drive(groups.failures(queue.settings, "b", 0, 9))[0].error == "its record is gone"
    assert queue.claim(0).id == left


def test_what_carries_the_name_of_a_group_but_is_none_of_it_changes_nothing(queue: Handle) -> None:
    fill(queue, 2, concurrency=1)
    for number, tag in enumerate(["b 0 old", "b 7 g1", "b 99999999999 g1", "c 0 g1", "b", "", "b x g1"]):
        queue.enqueue("work", job_id=f"other-{number}")
        queue.redis.hset(queue.keys.job(f"other-{number}"), "group", tag)
    queue.redis.hset(queue.keys.job("other-6"), "group", "b 0 g1")
    ran = []
    while (job := queue.claim(0)) is not None:
        ran.append(job.id)
        if job.id.startswith("other"):
            queue.complete(job, 1)
            assert counts(queue) == ("running", 0, 0)
    assert len(ran) == 8
    queue.cancel("b-0-g1")


@pytest.mark.parametrize("name", ["", ":items", ":counted", ":succeeded", ":results:0", ":failed"])
@pytest.mark.parametrize("end", ["complete", "fail"])
def test_a_damaged_group_stops_no_job(queue: Handle, name: str, end: str) -> None:
    fill(queue, 2)
    key = queue.keys.group("b") + name
    queue.redis.delete(key)
    queue.redis.sadd(key, "what is this")
    job = queue.claim(0)

    queue.complete(job, 1) if end == "complete" else queue.fail(job, Discard("no"))

    assert queue.places()[{"complete": "completed", "fail": "failed"}[end]] == [job.id]
    queue.redis.delete(key)
    queue.drive(groups.drop(queue.settings, "b"))


# -- generations, retention


def test_what_ends_in_an_old_generation_changes_nothing(queue: Handle) -> None:
    fill(queue, 2)
    slow = queue.claim(0)
    queue.fail(queue.claim(0), Discard("no"))
    queue.cancel(slow.id)
    queue.fail(slow, "stopped")
    assert counts(queue) == ("failed", 0, 2)
    finish(queue)

    assert queue.drive(groups.retry(queue.settings, "b")) == 2
    queue.requeue(slow.id)
    advance(queue)
    old = [job for job in (queue.claim(0), queue.claim(0), queue.claim(0)) if job.id == slow.id]
    queue.complete(old[0], "late")

    assert counts(queue) == ("running", 0, 0)
    for job_id in queue.places()["processing"]:
        queue.cancel(job_id)


def test_an_ended_group_is_kept_for_its_time(queue: Handle, clock: Clock) -> None:
    fill(queue, 1, kept_ms=600_000)
    finish(queue)
    clock.pass_time(599)
    advance(queue)
    assert look(queue).status == "completed"

    clock.pass_time(2)
    advance(queue)

    assert look(queue) is None
    assert not [name for name in queue.state().keys if name.startswith("group")]


def test_only_so_many_ended_groups_are_kept(queue: Handle, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedq.model.groups.MOST_KEPT", 2)
    for number in range(4):
        made = GroupDefinition(f"b{number}", "g1")
        queue.execute([groups.fill(queue.settings, made, (), 0, close=True)])
        clock.pass_time(1)
    advance(queue)
    assert queue.redis.zcard(queue.keys.groups) == 4, "they have just ended"

    clock.pass_time(31)
    advance(queue)

    assert sorted(queue.redis.zrange(queue.keys.groups, 0, -1)) == ["b2", "b3"]


def test_a_large_group_is_deleted_in_pages(queue: Handle) -> None:
    fill(queue, 1000, concurrency=1)
    queue.redis.hset(queue.keys.group("b"), "total", 100_000)
    for bucket in (0, 299, 300, 999):
        queue.redis.hset(f"{queue.keys.group('b')}:results:{bucket}", bucket * 100, 1)

    assert queue.drive(groups.drop(queue.settings, "b"))

    assert not [name for name in queue.state().keys if name.startswith("group")]


def test_a_suspended_job_is_woken_at_the_end(queue: Handle) -> None:
    queue.enqueue("run", job_id="run", delay=3600)
    waits = {"waits": '[["call","b",null,""]]', "run": "v=1 began=1"}
    queue.redis.hset(queue.keys.job("run"), mapping=waits)
    fill(queue, 1, wake="run", then="")

    finish(queue)

    assert queue.places()["completed"] == ["b-0-g1", "run"]


def test_children_beyond_a_script_s_share_are_made_by_the_promoter(queue: Handle) -> None:
    fill(queue, 1000)
    assert queue.stats()["pending_depth"] == 150

    queue.promote_due()

    assert queue.stats()["pending_depth"] == 1000


def test_a_plain_job_beside_a_group_costs_no_more(queue: Handle) -> None:
    queue.enqueue_many([NewJob(n) for n in range(3)])
    fill(queue, 2)

    assert len(finish(queue)) == 6


def test_an_attempt_that_lost_its_claim_adds_nothing(queue: Handle) -> None:
    """A worker that was frozen before it made the jobs of its run must not make them again."""
    queue.enqueue("run")
    job = queue.claim(0)
    made = groups.fill(queue.settings, definition(wake=job.id), [',"args":[1]'], 0, close=True, holder=job)
    queue.release(job)
    before = queue.dump()

    with pytest.raises(RunLost):
        unwrap(queue.execute([made])[0])

    assert queue.dump() == before
