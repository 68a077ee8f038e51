"""A queue's schedules: `queue.schedules`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeVar, Unpack
from zoneinfo import ZoneInfo

from schedq.inspect.queue_names import nearest
from schedq.logs import log
from schedq.model.payload import encode
from schedq.model.settings import Settings
from schedq.model.times import Duration, Instant, instant_ms
from schedq.queue.registry import NO_PAYLOAD, Registry, schedule_options, scheduled_payload, updated_payload
from schedq.queue.requests import Connections
from schedq.queue.task import Task
from schedq.queue.verb import AsyncVerbs, BlockingVerbs, verb
from schedq.schedules import control, records, register
from schedq.schedules.definition import Definition, ScheduleOptions, define, redefined
from schedq.schedules.records import ScheduleRecord
from schedq.schedules.register import Registration, Upserted
from schedq.transitions import Operation, RoundTrips, unwrap

T = TypeVar("T")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ScheduleVerbs:
    """The requests of `Schedules` and `AsyncSchedules`."""

    _connections: Connections
    _registry: Registry

    @verb
    def upsert(
        self,
        schedule_id: str,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        task: Task[..., Any] | str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        payload: Any = NO_PAYLOAD,
        **options: Unpack[ScheduleOptions],
    ) -> RoundTrips[Upserted]:
        """Store a schedule: "created", "changed", "unchanged", or "kept" if the stored one has a higher version.

        The next slot stays as it is, unless the timing changes: a new timing starts from now.

        Args:
            schedule_id: 1 to 48 characters of `A-Z a-z 0-9 _ -`.
            cron: 5 fields, or 6 with seconds first.
            every: an interval instead, seconds or a timedelta.
            task: a task, or its name.
            args: positional arguments of each call of the task.
            kwargs: keyword arguments of each call of the task.
            payload: a payload instead of a task, for `@queue.handler` and other languages.
            options: see `ScheduleOptions`.

        Raises:
            UsageError: an argument is invalid; the message names it.
            QueueFull, StoreUnavailable: as `Queue.enqueue`.
        """
        settings = self._connections.settings
        if isinstance(task, str):
            _look_for_task(settings.name, schedule_id, task, self._registry)
        payload, own = scheduled_payload(schedule_id, task, payload, args, kwargs, known=self._registry.get(task))
        text = encode(payload, settings.max_payload)
        definition = define(schedule_id, text, cron=cron, every=every, options=schedule_options(own, options))
        stored = yield from register.upsert(settings, definition)
        if definition.end_ms and stored in ("created", "changed"):
            yield from _look_for_slots(settings, schedule_id)
        return stored

    @verb
    def update(
        self,
        schedule_id: str,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        task: Task[..., Any] | str | None = None,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        payload: Any = NO_PAYLOAD,
        **options: Unpack[ScheduleOptions],
    ) -> RoundTrips[Upserted]:
        """Change some of a stored schedule, and keep what is not given: "changed", "unchanged" or "kept", as `upsert`.

        An option that is given as None returns to its default. A worker that starts writes its code's definition
        again, unless `version` is above the code's.

        Args:
            schedule_id: the schedule.
            cron: a cron expression instead of its timing.
            every: an interval instead of its timing, seconds or a timedelta.
            task: another task, or its name.
            args: other positional arguments.
            kwargs: other keyword arguments, all of them.
            payload: another payload, instead of a task.
            options: see `ScheduleOptions`.

        Raises:
            UsageError: the schedule does not exist or is damaged, or an argument is invalid; the message names it.
            QueueFull, StoreUnavailable: as `Queue.enqueue`.
        """
        settings = self._connections.settings
        change = partial(self._changed, task, args, kwargs, payload, cron=cron, every=every, options=options)
        return register.update(settings, schedule_id, change)

    def _changed(
        self,
        task: Task[..., Any] | str | None,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        payload: Any,
        old: Definition,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        options: ScheduleOptions,
    ) -> Definition:
        """The definition after an update."""
        new, gate = updated_payload(old, task, payload, args, kwargs, self._registry.get)
        text = None if new is NO_PAYLOAD else encode(new, self._connections.settings.max_payload)
        return redefined(old, text, cron=cron, every=every, options={**gate, **options})

    @verb
    def register(self, *, prune: bool = False) -> RoundTrips[Registration]:
        """Store the schedules declared in the application's code, as a worker does when it starts.

        Schedules no longer in the code are reported as missing, or deleted with `prune`.
        """
        known = self._registry
        return register.register(self._connections.settings, known.schedules, known.owners, prune=prune)

    @verb
    def pause(self, schedule_id: str) -> RoundTrips[bool]:
        """Pause a schedule: it has no slots until it is resumed. False if it does not exist or is already paused.

        One that the code of this process declares, and no worker has stored yet, is stored.
        """
        return self._with_own(schedule_id, partial(control.pause, self._connections.settings, schedule_id))

    @verb
    def resume(self, schedule_id: str) -> RoundTrips[bool]:
        """Resume a schedule from now; False if it is neither paused nor damaged. Slots during the pause are skipped.

        Raises:
            UsageError: its definition is still damaged.
        """
        return control.resume(self._connections.settings, schedule_id)

    @verb
    def trigger(self, schedule_id: str) -> RoundTrips[str | None]:
        """Enqueue one job of a schedule now, whatever its policies; returns its id, None if there is no schedule.

        One that the code of this process declares, and no worker has stored yet, is stored.
        """
        return self._with_own(schedule_id, partial(control.trigger, self._connections.settings, schedule_id))

    @verb
    def delete(self, schedule_id: str) -> Operation[bool]:
        """Delete a schedule and the record of its slots; False if it does not exist. Its jobs stay."""
        return control.delete(self._connections.settings, schedule_id)

    @verb
    def get(self, schedule_id: str) -> RoundTrips[ScheduleRecord | None]:
        """Return what is stored about a schedule, with its last 100 slots; None if it does not exist."""
        return records.get(self._connections.settings, schedule_id)

    @verb
    def list(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[ScheduleRecord]]:
        """Return a page of at most 1000 schedules, the earliest next slot first, without their past slots."""
        return records.page(self._connections.settings, offset, limit)

    @verb
    def next_slots(self, schedule_id: str, n: int = 10) -> RoundTrips[Sequence[datetime]]:
        """Return a schedule's next `n` (1 to 1000) slots in its time zone, fewer if it ends; as if resumed if paused.

        Raises:
            UsageError: the schedule does not exist or is damaged.
        """
        return _local(*(yield from records.next_slots(self._connections.settings, schedule_id, n)))

    @verb
    def backfill(self, schedule_id: str, start: Instant, end: Instant, *, rate: float = 10) -> RoundTrips[int]:
        """Enqueue one job for each slot of a past period, `rate` jobs a second; returns how many slots there are.

        A slot whose job already exists gets no second one, for as long as the first one's record is kept.

        Raises:
            UsageError: the schedule does not exist, or has no slot or more than 100,000 slots in that period.
        """
        first, last = instant_ms(start, "start"), instant_ms(end, "end")
        return control.backfill(self._connections.settings, schedule_id, first, last, rate)

    def _with_own(self, schedule_id: str, make: Callable[[], Operation[T]]) -> RoundTrips[T]:
        """Carry out an operation; if it had no effect, store the schedule that is missing, and repeat it."""
        settings, own = self._connections.settings, self._registry.schedule(schedule_id)
        (reply,) = yield [make()]
        if not unwrap(reply) and own is not None and (yield from records.get(settings, schedule_id)) is None:
            yield from register.upsert(settings, own)
            (reply,) = yield [make()]
        found: T = unwrap(reply)
        return found


class Schedules(ScheduleVerbs, BlockingVerbs):
    """The schedules of a queue. A schedule enqueues one job for each of its slots."""

    def __init__(self, connections: Connections, registry: Registry) -> None:
        self._connections, self._registry = connections, registry
        self._follow(connections)


class AsyncSchedules(ScheduleVerbs, AsyncVerbs):
    """`Schedules` for asyncio."""

    def __init__(self, connections: Connections, registry: Registry) -> None:
        self._connections, self._registry = connections, registry
        self._follow(connections)


def _look_for_slots(settings: Settings, schedule_id: str) -> RoundTrips[None]:
    """Warn if a schedule that was just stored has ended already."""
    record = yield from records.get(settings, schedule_id)
    if record is not None and record.state == "ended":
        log.warning("queue %s: schedule %s will never have a slot; is its end past?", settings.name, schedule_id)


def _look_for_task(queue: str, schedule_id: str, task: str, known: Registry) -> None:
    """Warn if this process has tasks of the queue, but not the one that a schedule names."""
    if not known.is_empty and known.get(task) is None:
        text = "queue %s: schedule %s calls the task %r, which is not known here%s"
        log.warning(text, queue, schedule_id, task, nearest(task, known.names))


def _local(tz: str, slots: Sequence[int]) -> Sequence[datetime]:
    zone = ZoneInfo(tz)
    return [(_EPOCH + timedelta(milliseconds=slot)).astimezone(zone) for slot in slots]
