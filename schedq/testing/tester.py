"""Tests of whole applications: an empty server, time that the test moves, and a record of what was enqueued."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from schedq.connection.address import Address
from schedq.connection.async_client import AsyncClient
from schedq.connection.client import Client
from schedq.connection.request import BaseClient, Request
from schedq.errors import UsageError
from schedq.inspect.display import count
from schedq.logs import log
from schedq.model.records import score_ms
from schedq.model.tasks import is_task_call
from schedq.model.times import LAST_INSTANT_MS, Duration, duration_ms, span
from schedq.queue.job import Job
from schedq.queue.queue import Queue, QueueBase
from schedq.schedules.definition import Definition
from schedq.schedules.records import scan_schedules
from schedq.testing.captured import Captured
from schedq.testing.loops import in_thread
from schedq.testing.replacement import Replacement, replaced
from schedq.testing.replays import differences
from schedq.testing.runner import run_all
from schedq.testing.server import empty, server_of_process
from schedq.testing.virtual_time import VirtualTime
from schedq.transitions import Operation, Pipeline, identity, unwrap

_MOST_ATTEMPTS: Final = 50_000
_MOST_JUMPS: Final = 10_000
_PAUSE: Final = 'pause it in this test: queue.schedules.pause("{}")'


class QueueTester(Captured):
    """All queues of the process on an empty server and on virtual time.

    Attributes:
        clock: returns the virtual time in Unix seconds.
        enqueued: the jobs that this process asked to enqueue, oldest first. Jobs of schedules are not among them.
    """

    def __init__(self, clock: VirtualTime) -> None:
        super().__init__()
        self.clock = clock
        self._queues: Callable[[], list[QueueBase]] = list

    def run_due(self) -> int:
        """Run what is due in all queues until nothing is, also jobs that those jobs enqueue; returns the attempts.

        Raises:
            UsageError: called in an event loop, which it would block; await `arun_due` there. Or there is no end of it.
        """
        _refuse_in_loop("run_due")
        attempts = self._run()
        self._warn_of_queues_without_tasks()
        return attempts

    def fast_forward(self, duration: Duration | None = None) -> int:
        """Jump from each instant at which something is due to the next one, and run what is due at each.

        Args:
            duration: how far to go, in seconds or as a timedelta; schedules fire on the way. None: until no job waits
                for its time. The schedules then fire as long as there are such jobs.

        Returns:
            How many attempts were made.

        Raises:
            UsageError: called in an event loop; await `afast_forward` there. Or 10,000 jumps were not
                enough; the message names the schedule that fires most often, or the gate or task that waits next.
        """
        _refuse_in_loop("fast_forward")
        end_ms = None if duration is None else int(self.clock() * 1000) + duration_ms(duration, "duration")
        attempts = self._run()
        if end_ms is not None:
            self._refuse_too_frequent(end_ms)
        for _ in range(_MOST_JUMPS):
            at_ms = self._next_ms(has_end=end_ms is not None)
            if at_ms is None or (end_ms is not None and at_ms > end_ms):
                if end_ms is not None:
                    self._go_to(end_ms)
                self._warn_of_queues_without_tasks()
                return attempts
            self._go_to(at_ms)
            attempts += self._run(starts=False)
        raise UsageError(self._why_so_many(end_ms))

    def assert_replays(self, job: Job[Any]) -> None:
        """Check that the workflow of a job takes the same way and comes to the same end whenever it runs again.

        The function runs again from each part of the job's record. No step is called, no message is taken, and hooks
        and middleware are left out. This finds code outside of steps that uses a clock, random numbers or a store that
        changes: by an operation that is not in the record, by other arguments of a step, or by another end.

        Args:
            job: one that has completed or failed in this test.

        Raises:
            AssertionError: it takes another way.
            UsageError: it is no job of a workflow, it has not ended, or a worker elsewhere completed it and its
                results of more than 1 KiB are gone.
        """
        _refuse_in_loop("assert_replays")
        record = job.record()
        if record is None:
            raise UsageError(f"nothing is stored about job {job.id}")
        for queues in self._by_name():
            for queue in queues if queues[0].name == job.queue_name else ():
                if (task := queue.registry.task_of(record.payload)) is not None:
                    found = differences(queue.blocking, record)
                    assert not found, "\n".join([f"workflow {task.name} takes another way when it runs again:", *found])
                    return
        raise UsageError(f"nothing here has the workflow of job {job.id}; import the module that defines it")

    async def aassert_replays(self, job: Job[Any]) -> None:
        """`assert_replays` in a thread, for async tests."""
        await in_thread(self.assert_replays, job)

    async def arun_due(self) -> int:
        """`run_due` in a thread, for async tests."""
        return await in_thread(self.run_due)

    async def afast_forward(self, duration: Duration | None = None) -> int:
        """`fast_forward` in a thread, for async tests."""
        return await in_thread(self.fast_forward, duration)

    def _run(self, *, starts: bool = True) -> int:
        attempts = 0
        while known := self._by_name():
            made = sum(run_all(queues, _MOST_ATTEMPTS, starts=starts) for queues in known)
            attempts += made
            if attempts > _MOST_ATTEMPTS:
                raise UsageError(
                    f"after {attempts:,} attempts there is still something due: a job enqueues itself again"
                )
            is_alone = len(known) == len(self._by_name()) == 1  # so no other queue has enqueued jobs for it meanwhile
            if not made or (is_alone and made < _MOST_ATTEMPTS):
                break
        return attempts

    def _by_name(self) -> list[list[QueueBase]]:
        """The queues whose jobs can run here, those with the same name together, the newest first.

        They do not include queues of operators' tools, or of code that only enqueues.
        """
        found: dict[str, list[QueueBase]] = {}
        for queue in reversed(self._queues()):
            if queue.settings.listed and not queue.registry.is_empty:
                found.setdefault(queue.name, []).append(queue)
        return list(found.values())

    def _known(self) -> list[Queue]:
        return [queues[0].blocking for queues in self._by_name()]

    def _warn_of_queues_without_tasks(self) -> None:
        """Log the queues of the application that have jobs, and for which nothing imported could run them."""
        queues = [queue for queue in self._queues() if queue.settings.listed]
        able = {queue.name for queue in queues if not queue.registry.is_empty}
        for queue in {queue.name: queue.blocking for queue in queues if queue.name not in able}.values():
            if waiting := queue.stats()["pending_depth"]:
                text = "queue %s: nothing here can run its %s; a test imports the module that defines its tasks"
                log.warning(text, queue.name, count(waiting, "job"))

    def _next_ms(self, *, has_end: bool) -> int | None:
        """The next instant at which something is due: without an end, only if a job waits for its time."""
        now_ms = int(self.clock() * 1000)
        seen = [map(unwrap, queue._client.execute(_instants(queue, now_ms))) for queue in self._known()]
        found, slots = list[int](), list[int]()
        for delayed, resting, schedules in seen:
            found += [score_ms(first[1]) for first in (delayed, resting) if first]
            slots += [] if schedules.upcoming_ms is None else [schedules.upcoming_ms]
        return min(found + slots if has_end or found else [], default=None)

    def _refuse_too_frequent(self, end_ms: int) -> None:
        """Raise at once if a schedule has more slots until the end than there may be jumps, as that takes minutes."""
        for queue in self._known():
            for one in queue.schedules.list(limit=1000):
                if one.state != "active" or one.next_slot_ms is None:
                    continue
                definition = Definition.from_fields(one.id, one.fields)
                slots = definition.recurrence.count(one.next_slot_ms - 1, min(end_ms, definition.end_ms or end_ms))
                if min(slots, definition.max_runs or slots) > _MOST_JUMPS:
                    raise UsageError(
                        f"schedule {one.id} of queue {queue.name} has {slots:,} slots until then, more than the "
                        f"{_MOST_JUMPS:,} jumps that there may be; {_PAUSE.format(one.id)}"
                    )

    def _why_so_many(self, end_ms: int | None) -> str:
        """Why `_MOST_JUMPS` were not enough, and what to do: most often a schedule fires every few seconds."""
        queues = self._known()
        left = "" if end_ms is None else f", {span(end_ms - int(self.clock() * 1000))} before the end"
        said = f"jobs or schedules are still due after {_MOST_JUMPS:,} jumps{left}"
        fired = [(one.runs, one.id, queue.name) for queue in queues for one in queue.schedules.list(limit=1000)]
        if sum(runs for runs, _, _ in fired) * 2 >= _MOST_JUMPS:
            runs, schedule_id, name = max(fired)
            return f"{said}: schedule {schedule_id} of queue {name} fired {runs:,} times; {_PAUSE.format(schedule_id)}"
        way_out = "say how far to go, as in fast_forward(3600)" if end_ms is None else "pass a shorter duration"
        if limited := self._next_limited(queues):
            return f"{said}: jobs wait for the limits of {limited}, and each start is a jump; {way_out}"
        payloads = [job.payload for queue in queues for job in queue.list_delayed(limit=1)]
        waiting = sorted({str(payload["task"]) for payload in payloads if is_task_call(payload)})
        task = f" (task {', '.join(waiting)} waits next)" if waiting else ""
        return f"{said}: a job that enqueues itself again never ends{task}; {way_out}"

    def _next_limited(self, queues: Sequence[Queue]) -> str:
        """The gate or queue whose limits allow the next start; '' if a delayed job is due earlier, or nothing waits."""
        found = list[tuple[int, str]]()
        for queue in queues:
            delayed, resting, _ = map(unwrap, queue._client.execute(_instants(queue, int(self.clock() * 1000))))
            found += [(score_ms(first[1]), "") for first in [delayed] if first]
            gate = resting[0].partition(" ")[0] if resting else ""
            found += [(score_ms(resting[1]), f"gate {gate}" if gate else f"queue {queue.name}")] if resting else []
        return min(found, default=(0, ""))[1]

    def _go_to(self, at_ms: int) -> None:
        self.clock.move(max(0.0, (at_ms + 0.5) / 1000 - self.clock()))


@contextmanager
def queue_tester(url: str | None = None) -> Iterator[QueueTester]:
    """Connect all queues of the process to an empty server and to virtual time in this block.

    Args:
        url: the URL of the fixture `schedq_server`. None: a server that lives as long as this process.

    Raises:
        UsageError: it is the URL of another server, whose data would be lost.
    """
    url = server_of_process() if url is None else url
    empty(url)
    tester, before = QueueTester(VirtualTime()), os.environ.get("SCHEDQ_REDIS_URL")
    address = Address(url)

    def on_server(queue: QueueBase) -> Replacement:
        settings = replace(queue.settings, clock=tester.clock, tagged=False, db=address.db)
        return Replacement(address, settings, _SingleServer(address, settings), _AsyncSingleServer(address, settings))

    os.environ["SCHEDQ_REDIS_URL"] = url  # for processes that the test starts
    try:
        with replaced(on_server, tester.enqueued.append) as queues:
            tester._queues = queues
            yield tester
    finally:
        if before is None:
            os.environ.pop("SCHEDQ_REDIS_URL", None)
        else:
            os.environ["SCHEDQ_REDIS_URL"] = before


class _Unconfirmed(BaseClient):
    """Stores jobs in memory only, whatever durability they ask for: the tests' server has no replica."""

    def _request(self, operations: Pipeline) -> Request:
        return super()._request([operation._replace(waits=()) for operation in operations])


class _SingleServer(_Unconfirmed, Client):
    pass


class _AsyncSingleServer(_Unconfirmed, AsyncClient):
    pass


def _instants(queue: Queue, now_ms: int) -> list[Operation[Any]]:
    """Read when the next delayed job is due, when the next key or gate may start one, and when a schedule fires."""
    settings = queue.settings
    waiting = [_first_after(key, now_ms) for key in (settings.keys.delayed, settings.keys.resting)]
    return [*waiting, scan_schedules(settings, "due", 0, 1)]


def _first_after(key: str, now_ms: int) -> Operation[list[str]]:
    """The first member after an instant, and its own instant.

    An earlier one can't run, because its queue is paused. One at the last instant there is does not wait for a time.
    """
    words = ("ZRANGE", key, f"({now_ms}", f"({LAST_INSTANT_MS}", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
    return Operation(f"read {key}", None, (), words, identity)


def _refuse_in_loop(name: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError(f"{name} would block this event loop; write: await a{name}()")
