"""What `schedq top` is looking at, and what keys do: views over views, a question, work under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol, cast

from rich.console import RenderableType

from schedq.cli import show
from schedq.cli.top import screens
from schedq.errors import Conflict, SchedqError
from schedq.job import JobRecord
from schedq.operations.pulse import Pulse
from schedq.operations.samples import Rate, rate
from schedq.operations.views import Stats
from schedq.queue import Queue

Act = Callable[[], Iterator[str]]
LISTS: Final = {"w": "pending", "d": "delayed", "x": "processing", "c": "completed", "f": "failed"}
_BATCH: Final = 250
_SAMPLES: Final = 10


class View(Protocol):
    """Something to look at."""

    hints: str

    def look(self) -> None:
        """Ask Redis."""

    def draw(self, lines: int) -> RenderableType:
        """Show what was found, in so many lines."""

    def press(self, key: str) -> None:
        """Do what a key means here."""


class Desk:
    """The views, the last on top; what was said last; a question that waits for its answer; work under way.

    Attributes:
        is_over: somebody wants to leave.
    """

    def __init__(self) -> None:
        self.views: list[View] = []
        self.is_over = False
        self._said = ""
        self._question: tuple[str, Act] | None = None
        self._work: Iterator[str] | None = None

    @property
    def is_working(self) -> bool:
        """Something is under way."""
        return self._work is not None

    @property
    def status(self) -> str:
        """The lowest line."""
        if self._question is not None:
            return f"{self._question[0]} [y/N]"
        return self._said or self.views[-1].hints

    def look(self) -> None:
        """Ask Redis anew, and do the next piece of work."""
        try:
            if self._work is not None:
                self._said = next(self._work)
        except StopIteration:
            self._work = None
        except SchedqError as error:
            self._work, self._said = None, str(error)
        try:
            self.views[-1].look()
        except SchedqError as error:
            self._said = str(error)

    def press(self, key: str) -> None:
        """Do what a key means."""
        self._said = ""
        if self._question is not None:
            (_, act), self._question = self._question, None
            if key in ("y", "Y"):
                self._work = act()
        elif key == "q":
            self.is_over = True
        elif key == "back":
            if len(self.views) > 1:
                self.views.pop()
        else:
            self.views[-1].press(key)

    def ask(self, question: str, act: Act) -> None:
        """Do something if the next key says so."""
        self._question = (question, act)

    def open(self, view: View) -> None:
        """Look at something else, until the way back."""
        self.views.append(view)


class Queues:
    """All queues, of which one can be opened."""

    hints = "↑↓ choose  ⏎ open  q quit"

    def __init__(self, desk: Desk, found: list[Queue]) -> None:
        self._desk = desk
        self._queues = found
        self._selected = 0
        self._rows: list[tuple[str, Stats | None, Rate | None]] = []

    def look(self) -> None:
        """As `View.look`."""
        self._rows = [(queue.name, *self._asked(queue)) for queue in self._queues]

    def _asked(self, queue: Queue) -> tuple[Stats | None, Rate | None]:
        try:
            stats, samples = queue.stats(), queue.inspector.samples(_SAMPLES)
        except Conflict:  # one queue's damage must not hide the others
            return None, None
        return stats, rate(samples, cast("dict[str, int]", stats), stats["now_ms"], 10)

    def draw(self, lines: int) -> RenderableType:
        """As `View.draw`."""
        return screens.queues(self._rows, self._selected, lines)

    def press(self, key: str) -> None:
        """As `View.press`."""
        self._selected = moved(self._selected, key, len(self._queues))
        if key == "enter" and self._queues:
            self._desk.open(OneQueue(self._desk, self._queues[self._selected]))


class OneQueue:
    """One queue at a glance."""

    hints = "p pause/resume  r requeue failed  jobs: w pending d delayed x running f failed c completed  ← back  q quit"

    def __init__(self, desk: Desk, queue: Queue) -> None:
        self._desk = desk
        self._queue = queue
        self._found: Pulse | None = None

    def look(self) -> None:
        """As `View.look`."""
        self._found = self._queue.inspector.pulse()

    def draw(self, lines: int) -> RenderableType:
        """As `View.draw`."""
        if self._found is None:
            return "…"
        return screens.queue(self._found, self._queue.address.label, lines)

    def press(self, key: str) -> None:
        """As `View.press`."""
        name = self._queue.name
        if key in LISTS:
            self._desk.open(Jobs(self._desk, self._queue, LISTS[key]))
        elif key == "p" and self._found is not None:
            if self._found.stats["paused_since_ms"] is None:
                self._desk.ask(f"Pause queue {name}?", self._pause)
            else:
                self._desk.ask(f"Let queue {name} go on?", self._resume)
        elif key == "r" and self._found is not None:
            failed = self._found.depths["failed"]
            if failed:
                question = f"Requeue {show.count(failed, 'failed job')} of queue {name}?"
                self._desk.ask(question, lambda: self._requeue(failed))

    def _pause(self) -> Iterator[str]:
        self._queue.pause()
        yield f"queue {self._queue.name} is paused"

    def _resume(self) -> Iterator[str]:
        self._queue.resume()
        yield f"queue {self._queue.name} goes on"

    def _requeue(self, failed: int) -> Iterator[str]:
        """In batches, no more than there were: what fails again meanwhile stays."""
        done = 0
        while done < failed and (some := self._queue.requeue_failed(limit=min(_BATCH, failed - done))):
            done += some
            yield f"requeued {done:,} of {failed:,}"


class Jobs:
    """The jobs of one place, of which one can be opened."""

    hints = "↑↓ choose  ⏎ open  r requeue  n run now  k cancel  ← back  q quit"

    def __init__(self, desk: Desk, queue: Queue, state: str) -> None:
        self._desk = desk
        self._queue = queue
        self._state = state
        self._selected = 0
        self._first = 0
        self._lines = 20
        self._total = self._now_ms = 0
        self._records: list[JobRecord] = []

    def look(self) -> None:
        """As `View.look`."""
        stats = self._queue.stats()
        self._now_ms = stats["now_ms"]
        self._total = cast("dict[str, int]", stats)[f"{self._state}_depth"]
        self._selected = max(0, min(self._selected, self._total - 1))
        shown = max(1, self._lines - 3)
        self._first = max(0, min(self._first, self._selected), self._selected - shown + 1)
        listing = getattr(self._queue, f"list_{self._state}")
        self._records = listing(offset=self._first, limit=min(shown, 200))

    def draw(self, lines: int) -> RenderableType:
        """As `View.draw`."""
        self._lines = lines
        title = f"queue {self._queue.name}, {self._state}"
        selected = self._selected - self._first
        return screens.jobs(title, self._records, selected, self._now_ms, first=self._first, total=self._total)

    def press(self, key: str) -> None:
        """As `View.press`."""
        self._selected = moved(self._selected, key, self._total)
        place = self._selected - self._first
        if 0 <= place < len(self._records):
            if key == "enter":
                self._desk.open(OneJob(self._desk, self._queue, self._records[place].id))
            else:
                act_on(self._desk, self._queue, self._records[place].id, key)


class OneJob:
    """One job."""

    hints = "r requeue  n run now  k cancel  ← back  q quit"

    def __init__(self, desk: Desk, queue: Queue, job_id: str) -> None:
        self._desk = desk
        self._queue = queue
        self._id = job_id
        self._record: JobRecord | None = None
        self._now_ms = 0

    def look(self) -> None:
        """As `View.look`."""
        self._record, self._now_ms = self._queue.get_job(self._id), self._queue.stats()["now_ms"]

    def draw(self, lines: int) -> RenderableType:
        """As `View.draw`."""
        if self._record is None:
            return f"nothing is stored of job {self._id}: trimmed, purged, or never there"
        return screens.job(self._record, self._now_ms, lines)

    def press(self, key: str) -> None:
        """As `View.press`."""
        act_on(self._desk, self._queue, self._id, key)


def moved(selected: int, key: str, count: int) -> int:
    """Which row is chosen after a key."""
    step = {"up": -1, "down": 1}.get(key, 0)
    return max(0, min(selected + step, count - 1))


def act_on(desk: Desk, queue: Queue, job_id: str, key: str) -> None:
    """Ask, and then do to one job what a key means."""
    acts: dict[str, tuple[str, Callable[[str], object]]] = {
        "r": ("Requeue", queue.requeue),
        "n": ("Run now", queue.run_now),
        "k": ("Cancel", queue.cancel),
    }
    if key not in acts:
        return
    word, verb = acts[key]

    def act() -> Iterator[str]:
        is_done = verb(job_id) not in (False, "no")
        yield f"{word} {job_id}: {'done' if is_done else 'not in the state for that; nothing was done'}"

    desk.ask(f"{word} {job_id}?", act)
