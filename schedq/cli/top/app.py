"""The state of `schedq top` and the actions of its keys: a stack of screens, a question, work in progress."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Final, cast

from rich.console import RenderableType

from schedq.cli.top import render
from schedq.errors import Conflict, SchedqError
from schedq.inspect import display
from schedq.inspect.overview import Pulse
from schedq.inspect.samples import Throughput, newest, rate
from schedq.inspect.stats import Stats
from schedq.inspect.stats import stats as queue_stats
from schedq.model.records import JobRecord
from schedq.model.settings import Settings
from schedq.queue.queue import Queue
from schedq.transitions import RoundTrips, unwrap

LISTS: Final = {"w": "pending", "d": "delayed", "x": "processing", "c": "completed", "f": "failed"}
_BATCH: Final = 250
_SAMPLES: Final = 3
"""Enough to include one older than ten seconds, since samples are slightly more than 10 s apart."""
_MOST_LINES: Final = 60
"""The height of the list of queues until the screen's height is known."""
Doing = tuple[Stats, Throughput | None]
Reader = Callable[[Settings], RoundTrips[Doing]]
Reads = Callable[[Sequence[str], Reader], Iterable[tuple[str, Doing | Conflict]]]


class Screen(ABC):
    """One view of the program: it reads its data, draws itself and handles keys."""

    hints: ClassVar[str]

    @abstractmethod
    def look(self) -> None:
        """Read the data from Redis."""

    @abstractmethod
    def draw(self, lines: int) -> RenderableType:
        """Draw the data that `look` read, at most `lines` high."""

    @abstractmethod
    def press(self, key: str, app: App) -> None:
        """Handle a key."""


class App:
    """A stack of screens, the last message, a pending question, and work in progress.

    Attributes:
        screens: the last one is shown.
        question: the question, and what is done if the next key is `y`.
        is_over: the user wants to quit.
    """

    def __init__(self, first: Screen) -> None:
        self.screens = [first]
        self.question: tuple[str, Callable[[], Iterator[str]]] | None = None
        self.is_over = False
        self._said = ""
        self._work: Iterator[str] | None = None

    @property
    def is_working(self) -> bool:
        return self._work is not None

    @property
    def status(self) -> str:
        """The text of the status line at the bottom."""
        if self.question is not None:
            return f"{self.question[0]} [y/N]"
        return self._said or self.screens[-1].hints

    def look(self) -> None:
        """Do the next piece of work, and refresh the screen's data."""
        try:
            if self._work is not None:
                self._said = next(self._work)
        except StopIteration:
            self._work = None
        except SchedqError as error:
            self._work, self._said = None, str(error)
        try:
            self.screens[-1].look()
        except SchedqError as error:
            self._said = str(error)

    def press(self, key: str) -> None:
        self._said = ""
        if self.question is not None:
            (_, act), self.question = self.question, None
            if key in ("y", "Y"):
                self._work = act()
        elif key == "q":
            self.is_over = True
        elif key != "back":
            self.screens[-1].press(key, self)
        elif len(self.screens) > 1:
            self.screens.pop()


class Queues(Screen):
    """All queues, one of which can be opened; only those on the screen are read.

    Args:
        names: their names.
        read: reads some, a result or Conflict for each.
        opened: opens one.
    """

    hints = "↑↓ choose  ⏎ open  q quit"

    def __init__(self, names: Sequence[str], read: Reads, opened: Callable[[str], Queue]) -> None:
        self._names = names
        self._read = read
        self._opened = opened
        self._selected = self._first = 0
        self._lines = _MOST_LINES
        self._rows: list[tuple[str, Stats | None, Throughput | None]] = []

    def look(self) -> None:
        self._first, shown = render.window(len(self._names), self._selected, self._lines - 3)
        some = self._names[self._first : self._first + shown]
        # One queue's damage must not hide the others.
        self._rows = [
            (name, *((None, None) if isinstance(found, Conflict) else found))
            for name, found in self._read(some, _doing)
        ]

    def draw(self, lines: int) -> RenderableType:
        self._lines = lines
        return render.queues(self._rows, self._selected, first=self._first, total=len(self._names))

    def press(self, key: str, app: App) -> None:
        self._selected = _moved(self._selected, key, len(self._names))
        if key == "enter" and self._names:
            app.screens.append(OneQueue(self._opened(self._names[self._selected])))


def _doing(queue: Settings) -> RoundTrips[Doing]:
    """What a queue has, and its rates."""
    stats, samples = yield [queue_stats(queue), newest(queue, _SAMPLES)]
    found: Stats = unwrap(stats)
    return found, rate(unwrap(samples), cast("dict[str, int]", found), found["now_ms"], 10)


class OneQueue(Screen):
    """One queue at a glance."""

    hints = "p pause  r requeue  w pending d delayed x running f failed c done  ← q quit"

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._found: Pulse | None = None

    def look(self) -> None:
        self._found = self._queue.inspector.pulse()

    def draw(self, lines: int) -> RenderableType:
        if self._found is None:
            return "…"
        return render.queue(self._found, self._queue.address.label, lines)

    def press(self, key: str, app: App) -> None:
        name = self._queue.name
        if key in LISTS:
            app.screens.append(Jobs(self._queue, LISTS[key]))
        elif key == "p" and self._found is not None:
            if self._found.stats["paused_since_ms"] is None:
                app.question = (f"Pause queue {name}?", lambda: _done(self._queue.pause, f"queue {name} is paused"))
            else:
                app.question = (f"Resume queue {name}?", lambda: _done(self._queue.resume, f"queue {name} is resumed"))
        elif key == "r" and self._found is not None:
            failed = self._found.depths["failed"]
            if failed:
                question = f"Requeue {display.count(failed, 'failed job')} of queue {name}?"
                app.question = (question, lambda: self._requeue(failed))

    def _requeue(self, failed: int) -> Iterator[str]:
        """Requeue in batches, at most `failed` in all, so that jobs which fail again are not requeued twice."""
        done = 0
        while done < failed and (some := self._queue.requeue_failed(limit=min(_BATCH, failed - done))):
            done += some
            yield f"requeued {done:,} of {failed:,}"


class Jobs(Screen):
    """The jobs of one state, one of which can be opened."""

    hints = "↑↓ choose  ⏎ open  r requeue  n run now  k cancel  ← back  q quit"

    def __init__(self, queue: Queue, state: str) -> None:
        self._queue = queue
        self._state = state
        self._selected = 0
        self._first = 0
        self._lines = 20
        self._total = self._now_ms = 0
        self._records: list[JobRecord] = []

    def look(self) -> None:
        stats = self._queue.stats()
        self._now_ms = stats["now_ms"]
        self._total = cast("dict[str, int]", stats)[f"{self._state}_depth"]
        self._selected = max(0, min(self._selected, self._total - 1))
        shown = max(1, self._lines - 3)
        self._first = max(0, min(self._first, self._selected), self._selected - shown + 1)
        listing = getattr(self._queue, f"list_{self._state}")
        self._records = listing(offset=self._first, limit=min(shown, 200))

    def draw(self, lines: int) -> RenderableType:
        self._lines = lines
        title = f"queue {self._queue.name}, {self._state}"
        selected = self._selected - self._first
        return render.jobs(title, self._records, selected, self._now_ms, first=self._first, total=self._total)

    def press(self, key: str, app: App) -> None:
        self._selected = _moved(self._selected, key, self._total)
        place = self._selected - self._first
        if 0 <= place < len(self._records):
            if key == "enter":
                app.screens.append(OneJob(self._queue, self._records[place].id))
            else:
                _act_on(app, self._queue, self._records[place].id, key)


class OneJob(Screen):
    """One job."""

    hints = "r requeue  n run now  k cancel  ← back  q quit"

    def __init__(self, queue: Queue, job_id: str) -> None:
        self._queue = queue
        self._id = job_id
        self._record: JobRecord | None = None
        self._now_ms = 0

    def look(self) -> None:
        self._record, self._now_ms = self._queue.get_job(self._id), self._queue.stats()["now_ms"]

    def draw(self, lines: int) -> RenderableType:
        if self._record is None:
            return f"nothing is stored about job {self._id}: trimmed, purged, or never enqueued"
        return render.job(self._record, self._now_ms, lines)

    def press(self, key: str, app: App) -> None:
        _act_on(app, self._queue, self._id, key)


def _done(act: Callable[[], object], said: str) -> Iterator[str]:
    act()
    yield said


def _moved(selected: int, key: str, count: int) -> int:
    """The selected row after a key press."""
    step = {"up": -1, "down": 1}.get(key, 0)
    return max(0, min(selected + step, count - 1))


def _act_on(app: App, queue: Queue, job_id: str, key: str) -> None:
    """Ask for confirmation of the action that a key stands for, on one job."""
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
        yield f"{word} {job_id}: {'done' if is_done else 'not possible in its state; nothing was done'}"

    app.question = (f"{word} {job_id}?", act)
