"""Scenes of schedules: their slots are fired, and operators change them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from schedq import Fixed, Queue
from schedq.schedules import control, fire, records, register
from schedq.schedules.definition import Definition
from schedq.schedules.fire import plan
from schedq.transitions import Operation, reclaim
from scripts.tools.crashes.scene import Scene, Staged, command
from tests.doors import Clock

_DAY: Final = 86_400


def _schedule(queue: Queue, name: str, **options: Any) -> None:
    given: dict[str, Any] = {"every": _DAY, "payload": name} | options
    queue.schedules.upsert(name, **given)


def _fire(queue: Queue, clock: Clock) -> Staged:
    """Slots of every kind: on time, missed, late, deferred; with a last run that waits or is running; damaged; gone."""
    for overlap in ("allow", "skip", "queue_one", "cancel_running"):
        _schedule(queue, f"runs-{overlap}", overlap=overlap)
    _schedule(queue, "waits", overlap="cancel_running", backoff=Fixed(5))
    _schedule(queue, "later", jitter=3600, max_runs=1)
    _schedule(queue, "all", catch_up="all", every=_DAY / 2)
    _schedule(queue, "missed", every=_DAY / 4)
    _schedule(queue, "late", every=_DAY / 4, window=0)
    for name in ("damaged", "gone", "paused"):
        _schedule(queue, name)
    command(queue, "HDEL", queue.settings.keys.schedule("damaged"), "payload")
    command(queue, "DEL", queue.settings.keys.schedule("gone"))
    _mark_schedule(queue, "paused", "paused_at_ms", 1)
    before = [_triggered(queue, f"runs-{overlap}") for overlap in ("allow", "skip", "queue_one", "cancel_running")]
    for _ in before:
        queue.claim(0)
    before.append(_triggered(queue, "waits"))
    clock.pass_time(_DAY + 1)
    queue._drive(reclaim.take_back(queue.settings))
    for _ in before[:4]:
        queue.claim(0)
    return Staged(_firing(queue), before, goes_on=True)


def _firing(queue: Queue) -> Operation[Any]:
    """The request that fires everything that is due."""
    scan = queue._ask(records.scan_schedules(queue.settings, "due", 0, 100))
    memory, batch = fire.DefinitionCache(), []
    for seen in scan.found:
        definition = memory.learn(seen, queue._ask(records.read(queue.settings, seen.id)))
        slot = int(seen.slot)
        made = fire.disable(definition) if isinstance(definition, str) else plan(definition, slot, scan.now_ms)
        batch.append((seen, made))
    return fire.fire(queue.settings, batch)


def _triggered(queue: Queue, name: str) -> str:
    job_id = queue.schedules.trigger(name)
    assert job_id is not None
    return job_id


def _mark_schedule(queue: Queue, name: str, *pairs: str | int) -> None:
    command(queue, "HSET", queue.settings.keys.schedule(name), *pairs)


def _upsert(*, stored: bool) -> Callable[[Queue, Clock], Staged]:
    def stage(queue: Queue, clock: Clock) -> Staged:
        if stored:
            _schedule(queue, "report", overlap="skip", jitter=5)
        seen = queue._ask(records.scan_schedules(queue.settings, "these", 0, 0, ["report"])).found[0]
        definition = Definition("report", '"new"', every_ms=60_000, max_runs=1)
        operation = register._written(queue.settings, definition, seen, clock.now_ms, "request")
        assert isinstance(operation, Operation)
        return Staged(operation, [queue.enqueue(1)], reply="changed" if stored else "created")

    return stage


def _pause_schedule(queue: Queue, clock: Clock) -> Staged:
    _schedule(queue, "report")
    return Staged(control.pause(queue.settings, "report"), [queue.enqueue(1)], reply=True)


def _resume_schedule(queue: Queue, clock: Clock) -> Staged:
    _schedule(queue, "report", max_runs=1)
    queue.schedules.pause("report")
    clock.pass_time(3 * _DAY)
    seen = queue._ask(records.scan_schedules(queue.settings, "these", 0, 0, ["report"])).found[0]
    passed = (clock.now_ms - 2 * _DAY * 1000, clock.now_ms, 3)
    operation = control._control(
        queue.settings, "resume", "report", "request", seen=seen.definition, slot=clock.now_ms + 1000, passed=passed
    )
    return Staged(operation, [queue.enqueue(1)], reply="yes")


def _trigger(queue: Queue, clock: Clock) -> Staged:
    _schedule(queue, "report", max_attempts=2)
    operation = control.trigger(queue.settings, "report")
    job_id = str(operation.args[4])
    return Staged(operation, [queue.enqueue(1)], accepts=[job_id], reply=job_id)


def _delete(queue: Queue, clock: Clock) -> Staged:
    _schedule(queue, "report", every=60)
    clock.pass_time(60)
    queue._drive(fire.fire_due(queue.settings, fire.DefinitionCache()))
    return Staged(control.delete(queue.settings, "report"), [queue.enqueue(1)])


def _peek(queue: Queue, clock: Clock) -> Staged:
    _schedule(queue, "report", max_runs=1)
    return Staged(records.scan_schedules(queue.settings, "all", 0, 10), [queue.enqueue(1)])


SCENES: Final = (
    Scene("fire", _fire),
    Scene("upsert, new", _upsert(stored=False)),
    Scene("upsert, changed", _upsert(stored=True)),
    Scene("pause schedule", _pause_schedule),
    Scene("resume schedule", _resume_schedule),
    Scene("trigger", _trigger),
    Scene("delete", _delete),
    Scene("scan_schedules", _peek),
)
