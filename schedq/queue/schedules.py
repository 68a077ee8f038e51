"""A queue's schedules: `queue.schedules`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Unpack
from zoneinfo import ZoneInfo

from schedq.model.payload import encode
from schedq.model.times import Duration, Instant, instant_ms
from schedq.queue.registry import NO_PAYLOAD, Registry, scheduled_payload
from schedq.queue.requests import Connections
from schedq.queue.task import Task
from schedq.queue.verb import AsyncVerbs, BlockingVerbs, verb
from schedq.schedules import control, records, register
from schedq.schedules.definition import ScheduleOptions, define
from schedq.schedules.records import ScheduleRecord
from schedq.schedules.register import Registration, Upserted
from schedq.transitions import Operation, RoundTrips

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ScheduleVerbs:
    """What can be done with the schedules of a queue."""

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
        """Write a schedule: "created", "changed", "unchanged", or "kept" if a higher version wrote what is there.

        The next slot stays, unless what says when is another: that counts from now.

        Args:
            schedule_id: 1 to 48 of `A-Z a-z 0-9 _ -`.
            cron: 5 fields, or 6 with seconds first.
            every: an interval instead, seconds or a timedelta.
            task: a task, or its name.
            args: of each call of the task.
            kwargs: of each call of the task.
            payload: instead of a task, for `@queue.handler` and other languages.
            options: see `ScheduleOptions`.

        Raises:
            UsageError: something in it can't be meant; the message names it.
            QueueFull, StoreUnavailable: as `Queue.enqueue`.
        """
        settings = self._connections.settings
        payload, own = scheduled_payload(schedule_id, task, payload, args, kwargs, known=self._registry.get(task))
        text = encode(payload, settings.max_payload)
        definition = define(schedule_id, text, cron=cron, every=every, options={**own, **options})
        return register.upsert(settings, definition)

    @verb
    def register(self, *, prune: bool = False) -> RoundTrips[Registration]:
        """Write the schedules of the application's code, as a worker does when it starts.

        What the code has no more is reported as missing, and deleted with `prune`.
        """
        known = self._registry
        return register.register(self._connections.settings, known.schedules, known.owners, prune=prune)

    @verb
    def pause(self, schedule_id: str) -> Operation[bool]:
        """Let it have no slots until it is resumed; False if it is not there, or paused already."""
        return control.pause(self._connections.settings, schedule_id)

    @verb
    def resume(self, schedule_id: str) -> RoundTrips[bool]:
        """Let it go on from now; False if it is neither paused nor damaged. Slots of the pause are skipped.

        Raises:
            UsageError: its definition is damaged still.
        """
        return control.resume(self._connections.settings, schedule_id)

    @verb
    def trigger(self, schedule_id: str) -> Operation[str | None]:
        """Make one job of it now, whatever its slots and policies; the job's id, None if there is no such schedule."""
        return control.trigger(self._connections.settings, schedule_id)

    @verb
    def delete(self, schedule_id: str) -> Operation[bool]:
        """Delete it and the account of its slots; False if it is not there. Jobs that it made stay."""
        return control.delete(self._connections.settings, schedule_id)

    @verb
    def get(self, schedule_id: str) -> RoundTrips[ScheduleRecord | None]:
        """All that is stored of one, with what became of its last 100 slots; None if nothing is."""
        return records.get(self._connections.settings, schedule_id)

    @verb
    def list(self, offset: int = 0, limit: int = 100) -> RoundTrips[list[ScheduleRecord]]:
        """Schedules, the one with the earliest next slot first; a page of at most 1000, without their past slots."""
        return records.page(self._connections.settings, offset, limit)

    @verb
    def next_slots(self, schedule_id: str, n: int = 10) -> RoundTrips[Sequence[datetime]]:
        """Its next `n` (1 to 1000) slots in its time zone, fewer if it ends; of a paused one, as if resumed now.

        Raises:
            UsageError: there is no such schedule, or it is damaged.
        """
        return _local(*(yield from records.next_slots(self._connections.settings, schedule_id, n)))

    @verb
    def backfill(self, schedule_id: str, start: Instant, end: Instant, *, rate: float = 10) -> RoundTrips[int]:
        """Enqueue the slots of a past time once, `rate` jobs a second; returns how many slots there are.

        A slot's job that was made before is not made again, for as long as its record is kept.

        Raises:
            UsageError: no such schedule, no slot of it in that time, or more than 100,000.
        """
        first, last = instant_ms(start, "start"), instant_ms(end, "end")
        return control.backfill(self._connections.settings, schedule_id, first, last, rate)


class Schedules(ScheduleVerbs, BlockingVerbs):
    """The schedules of a queue: what makes a job again and again, one per slot."""

    def __init__(self, connections: Connections, registry: Registry) -> None:
        self._connections, self._registry = connections, registry
        self._use_client(connections.blocking)


class AsyncSchedules(ScheduleVerbs, AsyncVerbs):
    """`Schedules`, awaited."""

    def __init__(self, connections: Connections, registry: Registry) -> None:
        self._connections, self._registry = connections, registry
        self._use_client(connections.aio)


def _local(tz: str, slots: Sequence[int]) -> Sequence[datetime]:
    zone = ZoneInfo(tz)
    return [(_EPOCH + timedelta(milliseconds=slot)).astimezone(zone) for slot in slots]
