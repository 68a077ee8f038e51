"""A worker's heartbeats: they describe it, carry requests to stop, and detect that Redis has lost its data."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import metadata
from typing import Any, Final

from schedq.background.reconnecting_client import LogThrottle, ReconnectingClient, run_forever
from schedq.connection import handshake
from schedq.errors import SchedqError, UsageError
from schedq.logs import log
from schedq.model import settings
from schedq.model.ids import new_request
from schedq.model.settings import Settings
from schedq.model.tasks import NO_OPTIONS, TaskOptions
from schedq.model.times import monotonic, wall
from schedq.observer import Observer
from schedq.queue.queue import QueueBase
from schedq.transitions import Operation, announce, gates, heartbeat, promote, unwrap
from schedq.worker.attempt import InFlight
from schedq.worker.executor import UnknownTasks
from schedq.worker.task_counts import TaskCounts
from schedq.worker.worker_context import Only, WorkerContext

_MOST_NAMED: Final = 100
_LEAST_REST_S: Final = 1.0
"""Minimum seconds between two heartbeats, however much changes."""
_FULL_EVERY: Final = 10
"""The first of this many heartbeats also asks for the eviction policy, and writes the names of the queues again."""


def worker_id() -> str:
    """A fresh id for a worker of this process: host, pid, and something random."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:40] or "host"
    return f"{host}-{os.getpid()}-{new_request()[:6]}"


@cache
def version() -> str:
    """Return the installed version of schedq, or ''."""
    try:
        return metadata.version("schedq")
    except metadata.PackageNotFoundError:
        return ""


def until_next_beat(phase: float, now_s: float) -> float:
    """Return the seconds until a worker's next heartbeat. Its `phase`, 0 to 1, determines the times.

    Without it, workers that start or reconnect together would continue to send their heartbeats together. If heartbeats
    are spread over time, one of them soon finds that a standby's place is vacant, and the later ones that it is taken.
    """
    period_s = settings.HEARTBEAT_S
    rest = period_s - (now_s + phase * period_s) % period_s
    return max(min(_LEAST_REST_S, period_s), rest)


_as_json: Final = partial(json.dumps, separators=(",", ":"))


class Heartbeat:
    """Tells Redis every 10 s that the worker is alive, and stores the queue's settings for other processes.

    If a heartbeat is no longer where it was written, Redis has other data than before: it was emptied, or was reset to
    an older state, perhaps without closing a connection.

    Args:
        in_flight: the attempts of this queue that the worker holds.
        unknown: gets the tasks of other workers, while there are jobs whose task this worker lacks.
        counts: what was counted of each task, which heartbeats store.
        on_other_data: called whenever Redis has other data than before.
        on_vacancy: called after each reply with the promoter's part that is vacant.
        only: the tasks whose jobs the worker takes.
        here: the settings of all queues at the same server, if these heartbeats do what one is enough for.
    """

    def __init__(
        self,
        queue: QueueBase,
        client: ReconnectingClient,
        context: WorkerContext,
        in_flight: InFlight,
        *,
        unknown: UnknownTasks,
        counts: TaskCounts,
        on_other_data: Callable[[], None],
        on_vacancy: Callable[[promote.Part], None],
        only: Only,
        here: Sequence[Settings],
    ) -> None:
        self._queue, self._here = queue, here
        self._settings = queue.settings
        self._client = client
        self._context = context
        self._in_flight = in_flight
        self._unknown = unknown
        self._counts = counts
        self._on_other_data = on_other_data
        self._on_vacancy = on_vacancy
        self._only = only
        self._throttle = LogThrottle()
        self._change = asyncio.Event()
        self._phase = random.random()  # noqa: S311 - spreads load
        self._has_answered = False
        self._was_asked = False
        self._last: heartbeat.Beat | None = None
        self._beats, self._announced_at = 0, -1
        self._announced: tuple[dict[str, TaskOptions], dict[str, str]] = {}, {}
        self._facts: dict[str, str | int] = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started_at_ms": int(wall() * 1000),
            "concurrency": context.capacity.size,
            "version": version(),
            "settings": _as_json(queue.settings.to_fields()),
        }

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        await run_forever(f"queue {self._settings.name}: heartbeat", self._beat_and_rest)

    async def beat_soon(self) -> None:
        """Send the next heartbeat soon, because something changed that other processes should know."""
        self._change.set()

    async def _beat_and_rest(self) -> float:
        rest = await self._beat()
        least = min(_LEAST_REST_S, rest)
        await asyncio.sleep(least)
        with suppress(TimeoutError):
            async with asyncio.timeout(rest - least):
                await self._change.wait()
        self._change.clear()
        return 0

    async def _beat(self) -> float:
        client, settings, context = self._client, self._settings, self._context
        losses = client.availability.losses
        beat = heartbeat.beat(settings, context.worker_id, self._facts | self._now())
        of_server = self._of_server()
        report = self._counts.report(settings, context.worker_id)
        answer, *rest = await client.execute([beat, *of_server, *report])
        if refusal := self._counts.confirm(rest[len(of_server) :]):
            self._throttle.log(f"queue {settings.name}: figures of tasks", refusal)
        # A UsageError is a configuration mistake and ends the worker.
        if not (self._has_answered or isinstance(answer, UsageError)):
            self._has_answered = True
            context.answered()
        is_refused = isinstance(answer, SchedqError)
        if not is_refused:
            self._read(answer)
        if of_server:
            self._look_at_policy(rest[0])
        # If one key is damaged, the others must still be written. The error is logged and the write tried again.
        options = self._queue.registry.options
        announced = options, dict(settings.gates)
        is_new = self._announced_at != losses or self._announced != announced
        written = sum(said != NO_OPTIONS for said in options.values())
        if is_new or not (is_refused or (answer.has_settings and answer.tasks >= written)):
            for written_now in [announce.announce(settings, options), *gates.define(settings)]:
                await client.ask(written_now)
            self._announced_at, self._announced = losses, announced
        if self._unknown.is_curious:
            self._unknown.learn(context.worker_id, await client.drive(heartbeat.workers(settings)))
        unwrap(answer)
        context.background_observers.notify(Observer.beat_answered, settings.name)
        return until_next_beat(self._phase, monotonic())

    def _of_server(self) -> list[Operation[Any]]:
        """Return what is sent in the name of all queues at the server, with some heartbeats only."""
        is_due = self._beats % _FULL_EVERY == 0 and bool(self._here)
        self._beats += 1
        # If the list of names was lost, perhaps no other process writes it. On a cluster it is on another node.
        names = [each for each in self._here if each.listed and not each.tagged]
        return [heartbeat.policy(), *([announce.enlist(*names)] if names else [])] if is_due else []

    def _read(self, answer: heartbeat.Beat) -> None:
        if answer.is_asked and not self._was_asked:
            self._was_asked = True
            self._context.stop()
        if self._settings.listed:
            # This matters on a cluster only, where the list may be on another node and be lost separately.
            self._queue.address.enlist(self._settings.name, again=self._last is not None)
        self._look_for_another_store(answer)
        self._on_vacancy(answer.vacancy)

    def _look_at_policy(self, policy: str | SchedqError) -> None:
        """Log from time to time that eviction was turned on. A worker that starts now would refuse to.

        This worker continues: if it stopped, its jobs would wait in Redis, where they may be evicted as well.
        """
        if isinstance(policy, SchedqError):
            return  # the Redis user may lack the permission
        for queue in self._here:
            try:
                handshake.check_policy(policy, queue, self._queue.address.label)
            except UsageError as error:
                self._throttle.log(f"queue {queue.name}", error)

    def _look_for_another_store(self, beat: heartbeat.Beat) -> None:
        """If Redis has other data than before, have everything written again that is normally written once."""
        before, self._last = self._last, beat
        if before is None or not beat.is_of_another_store(before):
            return
        if beat.is_in_time(before):
            log.warning(
                "queue %s: its data in Redis %s; settings, schedules of the code and its name are written again",
                self._settings.name,
                "is gone" if beat.last_ms is None else "was replaced by older data",
            )
        self._announced_at, self._beats = -1, 0
        self._change.set()
        self._on_other_data()

    async def leave(self, promoter_id: str) -> None:
        """Deregister the worker. If jobs wait, put back the wake marker that a cancelled wait may have taken.

        This takes two round trips: after the first, Redis has noticed that the connection of that wait was closed.
        """
        report = self._counts.report(self._settings, self._context.worker_id)
        leaves = heartbeat.leave(self._settings, self._context.worker_id, promoter_id)
        *replies, left = await self._client.execute([*report, leaves])
        self._counts.confirm(replies)
        unwrap(left)
        await self._client.ask(promote.wake(self._settings))

    def _now(self) -> dict[str, str | int]:
        in_flight, registry = self._in_flight.all(), self._queue.registry
        takes = [*registry.served, *([""] if registry.has_handler else [])] if self._only is None else self._only
        jobs = [
            {
                "id": attempt.job.id,
                "task": attempt.name,
                "started_at_ms": attempt.job.claimed_at_ms,
                "attempts": attempt.job.attempts,
            }
            for attempt in in_flight[:_MOST_NAMED]
        ]
        stuck, now_ms = self._context.stuck, wall() * 1000
        stuck_jobs = [
            {
                "id": slot.job_id,
                "queue": slot.queue,
                "task": slot.task,
                "why": slot.why,
                "since_ms": int(now_ms - slot.for_s * 1000),
            }
            for slot in stuck.found[:_MOST_NAMED]
        ]
        return {
            "running": len(in_flight),
            "jobs": _as_json(jobs),
            "tasks": _as_json([task for task in takes if task]),
            "workflows": _as_json([task for task in registry.workflows if task in takes]),
            "has_handler": int("" in takes),
            "stuck": stuck.unreplaced,
            "stuck_jobs": _as_json(stuck_jobs),
            # A worker with an older release of the application does not replace these definitions of schedules.
            "definitions": _as_json(registry.definitions),
        }
