"""Acts on many jobs: done in small batches in this process, while pages show how far they are."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from schedq.dashboard.guard import Refusal
from schedq.errors import SchedqError
from schedq.operations.acting import Acted

MOST_RUNNING: Final = 4
_MOST_KEPT: Final = 100

Work = Callable[["Errand"], Awaitable[Acted]]


class Errand:
    """One act under way, or over.

    Attributes:
        id: names its page.
        title: what is done.
        back: the page to go on to.
        total: jobs to look at, about; 0 if that is not known.
        state: "running", "done", "failed" or "stopped".
        problem: why it failed, or ''.
    """

    def __init__(self, title: str, back: str, total: int) -> None:
        self.id: Final = secrets.token_urlsafe(9)
        self.title, self.back, self.total = title, back, total
        self.state, self.problem = "running", ""
        self.acted = Acted()

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens."""
        return self.state != "running"

    @property
    def looked(self) -> int:
        """Jobs that were looked at so far."""
        return self.acted.looked

    @property
    def matched(self) -> int:
        """Of these, jobs that were meant."""
        return self.acted.matched

    @property
    def done(self) -> int:
        """Jobs it was done to."""
        return self.acted.done

    @property
    def refused(self) -> int:
        """Jobs that had moved on."""
        return self.acted.refused

    def note(self, acted: Acted) -> None:
        """So far it has come."""
        self.acted = acted


class Errands:
    """The errands of one process."""

    def __init__(self) -> None:
        self._all: OrderedDict[str, Errand] = OrderedDict()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def find(self, errand_id: str) -> Errand:
        """The errand of this id.

        Raises:
            Refusal: there is none: this process was started since, perhaps.
        """
        if errand_id not in self._all:
            raise Refusal(404, "Nothing is known of this act. What it did is in the log of its queue.")
        return self._all[errand_id]

    async def run(self, errand: Errand, work: Work, patience_s: float) -> None:
        """Begin, and return when it is over or has taken too long for a browser to wait.

        Raises:
            Refusal: as many run as may.
        """
        if len(self._tasks) >= MOST_RUNNING:
            raise Refusal(429, f"{MOST_RUNNING} acts on many jobs are running; wait for one to end.")
        self._all[errand.id] = errand
        if len(self._all) > _MOST_KEPT:
            oldest = next(errand_id for errand_id, kept in self._all.items() if kept.is_over)
            del self._all[oldest]
        task = asyncio.get_running_loop().create_task(self._do(errand, work), name="schedq dashboard errand")
        self._tasks[errand.id] = task
        await asyncio.wait({task}, timeout=patience_s)

    def stop(self, errand_id: str) -> None:
        """End it where it is."""
        if errand_id in self._tasks:
            self._tasks[errand_id].cancel()

    async def aclose(self) -> None:
        """End all where they are."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _do(self, errand: Errand, work: Work) -> None:
        try:
            errand.acted = await work(errand)
            errand.state = "done"
        except SchedqError as error:
            errand.state, errand.problem = "failed", str(error)
        except asyncio.CancelledError:
            errand.state = "stopped"
        finally:
            if not errand.is_over:
                errand.state, errand.problem = "failed", "it ended in an error of the dashboard's own"
            del self._tasks[errand.id]
