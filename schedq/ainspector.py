"""The operator's door to an `AsyncQueue`: `queue.inspector`, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from schedq.application import Application
from schedq.connection.asender import AsyncSender
from schedq.ids import new_request
from schedq.instants import Duration, Instant, duration_ms
from schedq.operations import acting, audit, directory, failures, forecast, pulse, samples, timeline, views, why
from schedq.operations.acting import Acted, ActOnMatching, ActOnThese, Progress, Wish
from schedq.operations.audit import LogEntry
from schedq.operations.failures import Errors
from schedq.operations.filters import Filter
from schedq.operations.finding import USUALLY_LOOKED, JobPage, find
from schedq.operations.forecast import Forecast
from schedq.operations.pulse import Pulse
from schedq.operations.purging import Purge
from schedq.operations.samples import MOST_SAMPLES, Sample
from schedq.operations.timeline import Timeline
from schedq.operations.transfer import Imported, bring
from schedq.operations.waiting import event
from schedq.operations.why import Why
from schedq.schedules import AsyncScheduling


class AsyncInspector:
    """`Inspector`, awaited."""

    def __init__(self, queue: Application, sender: AsyncSender) -> None:
        self._queue = queue
        self._sender = sender
        self._ask, self._drive = sender.ask, sender.drive

    # -- finding jobs and acting on many

    async def find(
        self,
        state: str,
        *,
        task: str | None = None,
        older_than: Duration | None = None,
        newer_than: Duration | None = None,
        text: str | None = None,
        error: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        look: int = USUALLY_LOOKED,
    ) -> JobPage:
        """As `Inspector.find`."""
        wanted = Filter.of(task, older_than, newer_than, text, error)
        return await self._drive(find(self._queue.settings, state, wanted, limit, cursor, look))

    async def act(
        self,
        action: str,
        job_ids: Sequence[str],
        *,
        delay: Duration | None = None,
        run_at: Instant | None = None,
        who: str | None = None,
    ) -> Acted:
        """As `Inspector.act`."""
        wish = Wish.of(action, delay, run_at, who)
        return await self._act(ActOnThese(self._queue.settings, wish, job_ids, None))

    async def act_on(
        self,
        action: str,
        state: str,
        *,
        task: str | None = None,
        older_than: Duration | None = None,
        newer_than: Duration | None = None,
        text: str | None = None,
        error: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        delay: Duration | None = None,
        run_at: Instant | None = None,
        progress: Progress | None = None,
        who: str | None = None,
    ) -> Acted:
        """As `Inspector.act_on`."""
        wish = Wish.of(action, delay, run_at, who)
        wanted = Filter.of(task, older_than, newer_than, text, error)
        settings = self._queue.settings
        return await self._act(
            ActOnMatching(settings, wish, state, wanted, limit=limit, dry_run=dry_run, progress=progress),
            is_noted=not dry_run,
        )

    async def import_jobs(self, entries: Sequence[object], *, finished: bool = False) -> Imported:
        """As `Inspector.import_jobs`."""
        return await self._drive(bring(self._queue.settings, entries, finished=finished))

    async def purge(self, *, who: str | None = None) -> int:
        """As `Inspector.purge`."""
        act = Purge(self._queue.settings, who)
        try:
            return await self._drive(act.steps())
        finally:  # also of one that was broken off
            await self._ask(act.note())

    async def note(self, action: str, said: str, *, count: int = 1, who: str | None = None) -> None:
        """As `Inspector.note`."""
        await self._ask(acting.note(self._queue.settings, new_request(), action, count, said, who))

    async def _act(self, act: ActOnThese | ActOnMatching, *, is_noted: bool = True) -> Acted:
        try:
            return await self._drive(act.steps())
        finally:  # also of one that was broken off
            if is_noted:
                await self._ask(act.note())

    # -- one job

    async def why(self, job_id: str) -> Why:
        """As `Inspector.why`."""
        return await self._drive(why.why(self._queue.settings, job_id))

    async def timeline(self, job_id: str) -> Timeline | None:
        """As `Inspector.timeline`."""
        return await self._drive(timeline.timeline(self._queue.settings, job_id))

    # -- what comes

    async def forecast(self, within: Duration) -> Forecast:
        """As `Inspector.forecast`."""
        return await self._drive(forecast.forecast(self._queue.settings, within))

    # -- how the queue is doing

    async def pulse(self) -> Pulse:
        """As `Inspector.pulse`."""
        return await self._drive(pulse.pulse(self._queue.settings))

    async def samples(self, limit: int = MOST_SAMPLES) -> list[Sample]:
        """As `Inspector.samples`."""
        return await self._ask(samples.newest(self._queue.settings, limit))

    async def errors(self, limit: int = 1000) -> Errors:
        """As `Inspector.errors`."""
        return await self._drive(failures.errors(self._queue.settings, limit))

    # -- audit and workers

    async def log(self, after: str | None = None, limit: int = 100) -> list[LogEntry]:
        """As `Inspector.log`."""
        return await self._ask(audit.log(self._queue.settings, after, limit))

    async def follow(self, timeout: Duration | None = None) -> AsyncGenerator[dict[str, Any] | None, None]:
        """As `Inspector.follow`."""
        silence = None if timeout is None else duration_ms(timeout, "timeout") / 1000
        heard: asyncio.Queue[str] = asyncio.Queue()
        channel = self._queue.settings.keys.events
        await self._ask(views.reach(self._queue.settings))
        here = self._sender.here()
        await here.subscription.listen(channel, heard.put_nowait)
        is_told = False
        try:
            await asyncio.wait_for(heard.get(), silence)  # the word that it listens
            here.check()
            while True:
                text = await asyncio.wait_for(heard.get(), silence)
                here.check()
                if text and (found := event(text)) is not None:
                    yield found
                    is_told = False
                elif text == "" and not is_told:
                    yield None
                    is_told = True
        except TimeoutError:
            return
        finally:
            await here.subscription.forget(channel, heard.put_nowait)

    async def stop_worker(self, worker_id: str) -> bool:
        """As `Inspector.stop_worker`."""
        return await self._ask(directory.stop(self._queue.settings, worker_id))


class AsyncInspected(AsyncScheduling, door=""):
    """What the asyncio queue has for operators."""

    @property
    def inspector(self) -> AsyncInspector:
        """Looking and acting as an operator."""
        return AsyncInspector(self, self._sender)
