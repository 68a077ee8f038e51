"""The two doors to a queue's schedules: `queue.schedules`, blocking or awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Unpack
from zoneinfo import ZoneInfo

from schedq.application import Application
from schedq.connection.asender import AsyncSender
from schedq.connection.sender import Sender
from schedq.instants import Duration, Instant, instant_ms
from schedq.operations import schedules, steering, timetable
from schedq.operations.schedules import Registration, Upserted
from schedq.operations.timetable import ScheduleRecord
from schedq.registry import NO_PAYLOAD, defined
from schedq.schedule import Definition, ScheduleOptions
from schedq.task import Task

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Schedules:
    """The schedules of a queue: what makes a job again and again, one per slot."""

    def __init__(self, queue: Application, sender: Sender) -> None:
        self._queue = queue
        self._ask, self._drive = sender.ask, sender.drive

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
    ) -> Upserted:
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
        definition = _defined(self._queue, schedule_id, cron, every, task, args, kwargs, payload, options)
        return self._drive(schedules.upsert(self._queue.settings, definition))

    def register(self, *, prune: bool = False) -> Registration:
        """Write the schedules of the application's code, as a worker does when it starts.

        What the code has no more is reported as missing, and deleted with `prune`.
        """
        registry = self._queue.registry
        return self._drive(schedules.register(self._queue.settings, registry.schedules, registry.owners, prune=prune))

    def pause(self, schedule_id: str) -> bool:
        """Let it have no slots until it is resumed; False if it is not there, or paused already."""
        return self._ask(steering.pause(self._queue.settings, schedule_id))

    def resume(self, schedule_id: str) -> bool:
        """Let it go on from now; False if it is neither paused nor damaged. Slots of the pause are skipped.

        Raises:
            UsageError: its definition is damaged still.
        """
        return self._drive(steering.resume(self._queue.settings, schedule_id))

    def trigger(self, schedule_id: str) -> str | None:
        """Make one job of it now, whatever its slots and policies; the job's id, None if there is no such schedule."""
        return self._ask(steering.trigger(self._queue.settings, schedule_id))

    def delete(self, schedule_id: str) -> bool:
        """Delete it and the account of its slots; False if it is not there. Jobs that it made stay."""
        return self._ask(steering.delete(self._queue.settings, schedule_id))

    def get(self, schedule_id: str) -> ScheduleRecord | None:
        """All that is stored of one, with what became of its last 100 slots; None if nothing is."""
        return self._drive(timetable.get(self._queue.settings, schedule_id))

    def list(self, offset: int = 0, limit: int = 100) -> list[ScheduleRecord]:
        """Schedules, the one with the earliest next slot first; a page of at most 1000, without their past slots."""
        return self._drive(timetable.page(self._queue.settings, offset, limit))

    def next_slots(self, schedule_id: str, n: int = 10) -> Sequence[datetime]:
        """Its next `n` (1 to 1000) slots in its time zone, fewer if it ends; of a paused one, as if resumed now.

        Raises:
            UsageError: there is no such schedule, or it is damaged.
        """
        return _local(*self._drive(timetable.next_slots(self._queue.settings, schedule_id, n)))

    def backfill(self, schedule_id: str, start: Instant, end: Instant, *, rate: float = 10) -> int:
        """Enqueue the slots of a past time once, `rate` jobs a second; returns how many slots there are.

        A slot's job that was made before is not made again, for as long as its record is kept.

        Raises:
            UsageError: no such schedule, no slot of it in that time, or more than 100,000.
        """
        first, last = instant_ms(start, "start"), instant_ms(end, "end")
        return self._drive(steering.backfill(self._queue.settings, schedule_id, first, last, rate))


class AsyncSchedules:
    """`Schedules`, awaited."""

    def __init__(self, queue: Application, sender: AsyncSender) -> None:
        self._queue = queue
        self._ask, self._drive = sender.ask, sender.drive

    async def upsert(
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
    ) -> Upserted:
        """As `Schedules.upsert`."""
        definition = _defined(self._queue, schedule_id, cron, every, task, args, kwargs, payload, options)
        return await self._drive(schedules.upsert(self._queue.settings, definition))

    async def register(self, *, prune: bool = False) -> Registration:
        """As `Schedules.register`."""
        registry = self._queue.registry
        return await self._drive(
            schedules.register(self._queue.settings, registry.schedules, registry.owners, prune=prune)
        )

    async def pause(self, schedule_id: str) -> bool:
        """As `Schedules.pause`."""
        return await self._ask(steering.pause(self._queue.settings, schedule_id))

    async def resume(self, schedule_id: str) -> bool:
        """As `Schedules.resume`."""
        return await self._drive(steering.resume(self._queue.settings, schedule_id))

    async def trigger(self, schedule_id: str) -> str | None:
        """As `Schedules.trigger`."""
        return await self._ask(steering.trigger(self._queue.settings, schedule_id))

    async def delete(self, schedule_id: str) -> bool:
        """As `Schedules.delete`."""
        return await self._ask(steering.delete(self._queue.settings, schedule_id))

    async def get(self, schedule_id: str) -> ScheduleRecord | None:
        """As `Schedules.get`."""
        return await self._drive(timetable.get(self._queue.settings, schedule_id))

    async def list(self, offset: int = 0, limit: int = 100) -> list[ScheduleRecord]:
        """As `Schedules.list`."""
        return await self._drive(timetable.page(self._queue.settings, offset, limit))

    async def next_slots(self, schedule_id: str, n: int = 10) -> Sequence[datetime]:
        """As `Schedules.next_slots`."""
        return _local(*await self._drive(timetable.next_slots(self._queue.settings, schedule_id, n)))

    async def backfill(self, schedule_id: str, start: Instant, end: Instant, *, rate: float = 10) -> int:
        """As `Schedules.backfill`."""
        first, last = instant_ms(start, "start"), instant_ms(end, "end")
        return await self._drive(steering.backfill(self._queue.settings, schedule_id, first, last, rate))


class Scheduling(Application, door=""):
    """What the blocking queue has for schedules."""

    _sender: Sender

    @property
    def schedules(self) -> Schedules:
        """Its schedules."""
        return Schedules(self, self._sender)


class AsyncScheduling(Application, door=""):
    """What the asyncio queue has for schedules."""

    _sender: AsyncSender

    @property
    def schedules(self) -> AsyncSchedules:
        """Its schedules."""
        return AsyncSchedules(self, self._sender)


def _defined(
    queue: Application,
    schedule_id: str,
    cron: str | None,
    every: Duration | None,
    task: Task[..., Any] | str | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    payload: Any,
    options: ScheduleOptions,
) -> Definition:
    most = queue.settings.max_payload
    return defined(
        schedule_id,
        most,
        options,
        cron=cron,
        every=every,
        task=task,
        payload=payload,
        args=args,
        kwargs=kwargs,
        known=queue.registry.get(task),
    )


def _local(tz: str, slots: Sequence[int]) -> Sequence[datetime]:
    zone = ZoneInfo(tz)
    return [(_EPOCH + timedelta(milliseconds=slot)).astimezone(zone) for slot in slots]
