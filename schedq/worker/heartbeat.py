"""A worker's signs of life: what it is, what it runs, whether somebody asked it to stop, whether Redis forgot them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import metadata
from typing import Final

from schedq.application import Application
from schedq.clocks import monotonic, wall
from schedq.connection import greeting
from schedq.errors import SchedqError, UsageError
from schedq.ids import new_request
from schedq.link import Complaint, Link, steadily
from schedq.logger import log
from schedq.observer import NOBODY, Observers
from schedq.operations import Operation, directory, firm, upkeep
from schedq.task import NO_OPTIONS, TaskOptions
from schedq.worker.held import Held
from schedq.worker.stuck import StuckSlots
from schedq.worker.unknown import UnknownTasks

_MOST_NAMED: Final = 100
_LEAST_REST_S: Final = 1.0
"""Seconds between two beats at least, however much changes."""


def worker_id() -> str:
    """A fresh id for a worker of this process: host, pid, and something random."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:40] or "host"
    return f"{host}-{os.getpid()}-{new_request()[:6]}"


def version() -> str:
    """Of schedq as it is installed here, or ''."""
    try:
        return metadata.version("schedq")
    except metadata.PackageNotFoundError:
        return ""


def until_next_beat(phase: float, now_s: float) -> float:
    """Seconds until a worker's next beat. Each keeps to times of its own, by its `phase` of 0 to 1.

    Workers that start together, or reconnect together, would go on beating together otherwise. Among beats that are
    spread, one soon finds that a standby's place is vacant, and the others that it is taken.
    """
    period_s = upkeep.HEARTBEAT_S
    rest = period_s - (now_s + phase * period_s) % period_s
    return max(min(_LEAST_REST_S, period_s), rest)


def _written(options: Mapping[str, TaskOptions]) -> int:
    """Of how many tasks something is written down."""
    return sum(said != NO_OPTIONS for said in options.values())


class Heartbeat:
    """Says every 10 s that the worker lives; also writes the queue's settings down for processes that lack them.

    A beat that is no longer where it was written says that Redis holds other data than before: it was emptied, or went
    back to an older state, perhaps without breaking a connection.

    Args:
        stop: called once, when somebody asked the worker to stop.
        replaced: called whenever Redis holds other data than before.
        unknown: told which tasks other workers have, while jobs come whose task this one lacks.
        answered: called once, when Redis has answered for the first time.
        stuck: slots of the worker whose handlers do not end; of all its queues, which share them.
        vacant: called with what each beat says nobody does for the queue.
    """

    def __init__(
        self,
        queue: Application,
        link: Link,
        name: str,
        held: Held,
        concurrency: int,
        stop: Callable[[], object],
        observers: Observers = NOBODY,
        replaced: Callable[[], None] = lambda: None,
        unknown: UnknownTasks | None = None,
        stuck: StuckSlots | None = None,
        vacant: Callable[[upkeep.Part], None] = lambda _: None,
        answered: Callable[[], object] = lambda: None,
    ) -> None:
        self._address = queue.address
        self._settings = queue.settings
        self._registry = queue.registry
        self._link = link
        self._name = name
        self._held = held
        self._stop = stop
        self._observers = observers
        self._replaced = replaced
        self._complaint = Complaint()
        self._unknown = unknown
        self._stuck = stuck
        self._answered = answered
        self._hurried = asyncio.Event()
        self._vacant = vacant
        self._phase = random.random()  # noqa: S311 - spreads load
        self._was_asked = False
        self._last: upkeep.Beat | None = None
        self._announced_at = -1
        self._announced: dict[str, TaskOptions] = {}
        self._facts: dict[str, str | int] = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started_at_ms": int(wall() * 1000),
            "concurrency": concurrency,
            "version": version(),
            "settings": json.dumps(queue.settings.to_fields(), separators=(",", ":")),
        }

    async def run(self) -> None:
        """Beat until cancelled."""
        await steadily(f"queue {self._settings.name}: heartbeat", self._beat_and_rest)

    async def hurry(self) -> None:
        """Let the next beat come soon: something has changed that others should know."""
        self._hurried.set()

    async def _beat_and_rest(self) -> float:
        rest = await self._beat()
        least = min(_LEAST_REST_S, rest)
        await asyncio.sleep(least)
        with suppress(TimeoutError):
            async with asyncio.timeout(rest - least):
                await self._hurried.wait()
        self._hurried.clear()
        return 0

    async def _beat(self) -> float:
        beat = upkeep.beat(self._settings, self._name, self._facts | self._now())
        losses = self._link.outage.losses
        answer, policy, *_ = await self._link.exchange([beat, upkeep.policy(), *self._name_of_queue()])
        if not isinstance(answer, UsageError):  # a mistake, which ends the worker
            self._answered()
            self._answered = lambda: None
        is_refused = isinstance(answer, SchedqError)
        if not is_refused and answer.is_asked and not self._was_asked:
            self._was_asked = True
            self._stop()
        if not is_refused:
            if self._settings.listed:
                # On a cluster, where the list may be on another node, and be lost alone.
                self._address.enlist(self._settings.name, again=self._last is not None)
            self._look_for_another_store(answer)
            self._vacant(answer.vacancy)
        self._look_at_policy(policy)
        # What one key's damage prevents must not prevent the other; either is said, and tried again.
        options = self._registry.options
        is_new = self._announced_at != losses or self._announced != options
        if is_new or not (is_refused or (answer.has_settings and answer.tasks >= _written(options))):
            await self._link.ask(upkeep.announce(self._settings, options))
            self._announced_at, self._announced = losses, options
        if self._unknown is not None and self._unknown.is_curious:
            self._unknown.learn(self._name, await self._link.drive(directory.workers(self._settings)))
        firm(answer)
        self._observers.beat_answered(self._settings.name)
        return until_next_beat(self._phase, monotonic())

    def _look_at_policy(self, policy: str | SchedqError) -> None:
        """Say, once a minute, that eviction was switched on: a worker that starts now would refuse to.

        It goes on all the same: what it would leave undone may be evicted as well.
        """
        if isinstance(policy, SchedqError):
            return  # its user may not ask
        try:
            greeting.judge_policy(policy, self._settings, self._address.label)
        except UsageError as error:
            self._complaint.say(f"queue {self._settings.name}", error)

    def _name_of_queue(self) -> list[Operation[bool]]:
        """What keeps the queue on the list of queues, which has no owner to write it again; not on a cluster."""
        return [] if self._settings.tagged or not self._settings.listed else [upkeep.enlist(self._settings)]

    def _look_for_another_store(self, beat: upkeep.Beat) -> None:
        """Have everything that is written once per store written again, if this is another one."""
        before, self._last = self._last, beat
        if before is None or not beat.is_of_another_store(before):
            return
        if beat.is_in_time(before):
            log.warning(
                "queue %s: its data in Redis %s; settings, schedules of the code and its name are written again",
                self._settings.name,
                "is gone" if beat.last_ms is None else "was replaced by older data",
            )
        self._announced_at = -1
        self._replaced()

    async def leave(self, promoter_id: str) -> None:
        """Go, in order. The marker that a cancelled wait may have taken is put back, if jobs wait.

        Two round trips: when the first is answered Redis has noticed that nobody waits on the old connection.
        """
        await self._link.ask(upkeep.leave(self._settings, self._name, promoter_id))
        await self._link.ask(upkeep.wake(self._settings))

    def _now(self) -> dict[str, str | int]:
        held = self._held.all()
        jobs = [
            {
                "id": attempt.job.id,
                "task": attempt.name,
                "started_at_ms": attempt.job.claimed_at_ms,
                "attempts": attempt.job.attempts,
            }
            for attempt in held[:_MOST_NAMED]
        ]
        return {
            "running": len(held),
            "jobs": json.dumps(jobs, separators=(",", ":")),
            "tasks": json.dumps(self._registry.names, separators=(",", ":")),
            "has_handler": int(self._registry.has_handler),
            **self._what_is_stuck(),
            **self._definitions(),
        }

    def _definitions(self) -> dict[str, str]:
        """Which definitions of schedules the code has: a worker of an older release leaves those alone."""
        return {"definitions": json.dumps(self._registry.definitions, separators=(",", ":"))}

    def _what_is_stuck(self) -> dict[str, str | int]:
        found = [] if self._stuck is None else self._stuck.found
        now_ms = wall() * 1000
        jobs = [
            {
                "id": slot.job_id,
                "queue": slot.queue,
                "task": slot.task,
                "why": slot.why,
                "since_ms": int(now_ms - slot.for_s * 1000),
            }
            for slot in found[:_MOST_NAMED]
        ]
        return {"stuck": len(found), "stuck_jobs": json.dumps(jobs, separators=(",", ":"))}
