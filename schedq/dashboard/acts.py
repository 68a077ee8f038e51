"""Acting from a browser: a page that asks first, then the act, and a line in the queue's log that says who."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, cast

from starlette.requests import Request

from schedq.aio import AsyncQueue
from schedq.cli.show import count
from schedq.dashboard.errands import Errand, Errands
from schedq.dashboard.guard import form, who
from schedq.dashboard.intents import SCHEDULE, WORKER, Intent
from schedq.dashboard.screens import View
from schedq.dashboard.visits import Visits
from schedq.lifecycle import PLACES
from schedq.operations.acting import Acted

PATIENCE_S: Final = 2.0
"""Seconds that a browser waits for an act on jobs; then it is shown how far that is."""
_COUNTING_S: Final = 0.5


class Enough(Exception):  # noqa: N818 - ends a count
    """It has been counted for long enough."""


class Acts:
    """What can be done, over all queues of one Redis."""

    def __init__(self, visits: Visits) -> None:
        self._visits = visits
        self._errands = Errands()

    async def aclose(self) -> None:
        """End what still runs."""
        await self._errands.aclose()

    def stop(self, errand_id: str) -> None:
        """End an act on many jobs where it is."""
        self._errands.stop(errand_id)

    async def errand(self, request: Request, _: Visits) -> View:
        """How far an act on many jobs is."""
        return View("errand.html", {"errand": self._errands.find(request.path_params["errand"])})

    async def confirm(self, request: Request, _: Visits) -> View:
        """The question before an act; nothing is changed by it."""
        name = request.path_params["name"]
        intent = Intent.of(form(request), name)
        async with self._visits.at(name) as queue:
            matched, is_all = await _count(queue, intent)
        facts = {
            "queue": name,
            "section": "",
            "question": intent.question(name, matched, is_all=is_all),
            "meaning": intent.deed.meaning,
            "names": intent.ids,
            "hidden": intent.hidden(),
            "label": intent.deed.label,
            "is_grave": intent.deed.is_grave,
            "asks_delay": intent.action == "reschedule",
            "back": intent.back,
        }
        return View("confirm.html", facts)

    async def act(self, request: Request) -> tuple[str, str]:
        """Do it; answers with the page to go on to, and what to say there."""
        name = request.path_params["name"]
        intent = Intent.of(form(request), name)
        by = who(request) or "dashboard"
        if intent.ids or intent.is_of_many or intent.action == "purge":
            return await self._act_on_jobs(name, intent, by)
        async with self._visits.at(name) as queue:
            said, done = await _DEEDS[intent.action](queue, intent.subject)
            await queue.inspector.note(intent.action, said, count=done, who=by)
        return intent.back, f"{said[:1].upper()}{said[1:]}."

    async def _act_on_jobs(self, name: str, intent: Intent, by: str) -> tuple[str, str]:
        delay = intent.wait()
        async with self._visits.at(name) as queue:
            stats = cast("dict[str, int]", await queue.stats())
        places = PLACES if intent.action == "purge" else (intent.state,)
        total = len(intent.ids) or sum(stats[f"{place}_depth"] for place in places)
        title = f"{intent.deed.label}: {count(total, 'job')} of queue {name} to look at"

        async def work(errand: Errand) -> Acted:
            async with self._visits.at(name) as queue:
                if intent.action == "purge":
                    gone = await queue.inspector.purge(who=by)
                    return Acted(gone, gone, gone)
                if intent.ids:
                    return await queue.inspector.act(intent.action, intent.ids, who=by, delay=delay)
                return await queue.inspector.act_on(
                    intent.action, intent.state, **intent.criteria, delay=delay, who=by, progress=errand.note
                )

        errand = Errand(title, intent.back, total)
        await self._errands.run(errand, work, PATIENCE_S)
        if errand.state != "done":
            return f"/errands/{errand.id}", ""
        said = f"{count(errand.done, 'job')} {intent.deed.past}"
        return intent.back, said + (f"; {errand.refused:,} refused: gone, or moved on." if errand.refused else ".")


async def _count(queue: AsyncQueue, intent: Intent) -> tuple[int | None, bool]:
    """How many jobs are meant, None if it is not about jobs; and whether these are all."""
    if intent.ids:
        return len(intent.ids), True
    if intent.action == "purge":
        stats = cast("dict[str, int]", await queue.stats())
        return sum(stats[f"{place}_depth"] for place in PLACES), True
    if not intent.is_of_many:
        return None, True
    if not any(intent.typed.values()):
        return cast("dict[str, int]", await queue.stats())[f"{intent.state}_depth"], True
    ends_at, found = time.monotonic() + _COUNTING_S, Acted()

    def note(acted: Acted) -> None:
        nonlocal found
        found = acted
        if time.monotonic() > ends_at:
            raise Enough

    delay = 0 if intent.action == "reschedule" else None
    try:
        await queue.inspector.act_on(
            intent.action, intent.state, **intent.criteria, delay=delay, dry_run=True, progress=note
        )
    except Enough:
        return found.matched, False
    return found.matched, True


# -- what is done to a queue, a schedule or a worker: what was done in words, and to how many


async def _pause(queue: AsyncQueue, _: str) -> tuple[str, int]:
    await queue.pause()
    return f"queue {queue.name} is paused", 1


async def _resume(queue: AsyncQueue, _: str) -> tuple[str, int]:
    was_paused = await queue.resume()
    return f"queue {queue.name} {'goes on' if was_paused else 'was not paused'}", int(was_paused)


async def _trigger(queue: AsyncQueue, schedule_id: str) -> tuple[str, int]:
    job_id = await queue.schedules.trigger(schedule_id)
    if job_id is None:
        return f"there is no schedule {schedule_id}", 0
    return f"{SCHEDULE} {schedule_id} made job {job_id}", 1


async def _pause_schedule(queue: AsyncQueue, schedule_id: str) -> tuple[str, int]:
    done = await queue.schedules.pause(schedule_id)
    return f"{SCHEDULE} {schedule_id} {'is paused' if done else 'is not there, or was paused already'}", int(done)


async def _resume_schedule(queue: AsyncQueue, schedule_id: str) -> tuple[str, int]:
    done = await queue.schedules.resume(schedule_id)
    return f"{SCHEDULE} {schedule_id} {'goes on' if done else 'was not paused'}", int(done)


async def _stop_worker(queue: AsyncQueue, worker_id: str) -> tuple[str, int]:
    done = await queue.inspector.stop_worker(worker_id)
    return f"{WORKER} {worker_id} {'was asked to stop' if done else 'is not there'}", int(done)


_DEEDS: Final[dict[str, Callable[[AsyncQueue, str], Awaitable[tuple[str, int]]]]] = {
    "pause": _pause,
    "resume": _resume,
    "trigger": _trigger,
    "pause_schedule": _pause_schedule,
    "resume_schedule": _resume_schedule,
    "stop_worker": _stop_worker,
}
