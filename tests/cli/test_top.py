"""`schedq top`: one screen for a pipe, a live one in a real terminal."""

from __future__ import annotations

import fcntl
import io
import os
import re
import select
import signal
import struct
import termios
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from rich.console import Console

from schedq import Conflict, Discard, Queue
from schedq.cli.queues import all_queues, read_each
from schedq.cli.top import render
from schedq.cli.top.app import App, Doing, OneQueue, Queues, Reader
from schedq.cli.top.render import curve, per_second, shares, window
from schedq.inspect.samples import Sample
from tests.cli.conftest import Run
from tests.cli.scenes import beat, claimed, failed_jobs, one_of_each
from tests.cli.screens import on_terminal, started_on
from tests.servers import Server
from tests.waiting import until

# -- one screen


def test_one_screen_shows_the_state_of_a_queue(run: Run, queue: Queue):
    one_of_each(queue)
    beat(queue, "w-1", running=1)

    said = "\n".join(run("top", "mail", "--once").lines)

    for fact in ("queue mail at", "NO PROMOTER", "per second", "start late by", "run for", "next due", "w-1"):
        assert fact in said
    assert "failing tasks" in said
    assert "no [bold]such[/bold]" in said
    assert "\x1b" not in said


def test_one_screen_of_all_queues_has_a_line_each(run: Run, make_queue: Callable[..., Queue]):
    for name in ("mail", "reports"):
        make_queue(name).enqueue(1)
    make_queue("reports").pause()
    make_queue("mail").pause(task="send")

    said = run("top", "--once").lines

    assert said[2].split()[:3] == [">", "mail", "1"]
    assert said[3].split()[0] == "reports"
    assert said[2].endswith("1 task PAUSED")
    assert said[3].endswith("PAUSED")


def test_one_screen_names_paused_tasks(run: Run, queue: Queue):
    queue.enqueue(1)
    queue.pause(task="send [bold]")

    assert "TASK send [bold] PAUSED" in "\n".join(run("top", "mail", "--once").lines)


def test_json_has_one_queue_or_all(run: Run, queue: Queue):
    queue.enqueue(1)

    one, everything = run("top", "mail", "--json").json, run("top", "--json").json

    assert (one["queue"], one["stats"]["pending_depth"]) == ("mail", 1)
    assert [found["queue"] for found in everything["queues"]] == ["mail"]


def test_the_live_screen_wants_a_terminal(run: Run, queue: Queue):
    queue.enqueue(1)

    said = run("top", "mail")

    assert (said.code, "--once" in said.complaint) == (2, True)


def test_a_damaged_queue_hides_no_other(run: Run, make_queue: Callable[..., Queue], desk: Server):
    for name in ("mail", "reports"):
        make_queue(name).enqueue(1)
    with desk.client() as client:
        client.set(make_queue("mail").settings.keys.stats, "what is this")

    said = run("top", "--once").lines

    assert "see schedq doctor" in said[2]
    assert "reports" in said[3]


# -- what keys do


def at(queue: Queue) -> App:
    """Looking at a queue."""
    made = App(OneQueue(queue))
    made.look()
    return made


def press(top: App, *keys: str) -> None:
    for key in keys:
        top.press(key)
        top.look()
    while top.is_working:
        top.look()


def drawn(top: App, capsys: pytest.CaptureFixture[str], lines: int = 40) -> str:
    from schedq.cli import output

    capsys.readouterr()
    output.show(top.screens[-1].draw(lines))
    return capsys.readouterr().out


def test_a_pause_asks_first(queue: Queue):
    queue.enqueue(1)
    top = at(queue)

    press(top, "p")
    assert top.status == "Pause queue mail? [y/N]"
    press(top, "n")
    assert queue.stats()["paused_since_ms"] is None

    press(top, "p", "y")
    assert queue.stats()["paused_since_ms"] is not None
    press(top, "p", "y")
    assert queue.stats()["paused_since_ms"] is None
    assert [entry.move for entry in queue.inspector.log()] == ["pause", "resume"]


def test_all_failed_jobs_can_be_requeued_in_batches(queue: Queue):
    failed_jobs(queue, 270)
    top = at(queue)

    press(top, "r")
    assert top.status == "Requeue 270 failed jobs of queue mail? [y/N]"
    top.press("y")
    top.look()
    assert top.status == "requeued 250 of 270"
    press(top)

    stats = queue.stats()
    assert (stats["pending_depth"], stats["failed_depth"]) == (270, 0)


def test_a_job_is_found_in_its_list_and_opened(queue: Queue, capsys: pytest.CaptureFixture[str]):
    newest = failed_jobs(queue, 3)[::-1]
    top = at(queue)

    press(top, "f", "down", "enter")

    assert newest[1] in drawn(top, capsys)
    assert "no use" in drawn(top, capsys)
    press(top, "r", "y")
    assert queue.get_job(newest[1]).status == "pending"
    press(top, "back")
    assert "failed: 1 to 2 of 2" in drawn(top, capsys)
    press(top, "back", "back")
    assert isinstance(top.screens[-1], OneQueue)


def test_a_long_list_is_read_page_by_page(queue: Queue, capsys: pytest.CaptureFixture[str]):
    ids = queue.enqueue_many(range(100))
    top = at(queue)
    press(top, "w")
    drawn(top, capsys, 13)

    press(top, *["down"] * 50)

    text = drawn(top, capsys, 13)
    assert f"> {ids[50]}" in "\n".join(" ".join(line.split()[:2]) for line in text.splitlines())
    assert len(text.splitlines()) <= 13


@pytest.mark.parametrize(("key", "state"), [("k", "cancelled"), ("n", "pending")])
def test_a_delayed_job_can_be_run_now_or_cancelled(queue: Queue, key: str, state: str):
    job_id = queue.enqueue(1, delay=300)
    top = at(queue)

    press(top, "d", key, "y")

    assert queue.get_job(job_id).status == state


def test_an_impossible_action_is_reported(queue: Queue):
    queue.enqueue(1)
    top = at(queue)

    press(top, "w", "r", "y")

    assert "nothing was done" in top.status


class Many:
    """All queues of a Redis, as `schedq top` shows them; it records which of them it reads and opens."""

    def __init__(self, make_queue: Callable[..., Queue], names: Sequence[str]) -> None:
        self.read: list[str] = []
        self.opened: list[str] = []
        self._make = make_queue
        self.top = App(Queues(names, self._reads, self._opens))

    def _reads(self, some: Sequence[str], read: Reader) -> Iterator[tuple[str, Doing | Conflict]]:
        self.read = [*some]
        for name in some:
            yield name, self._make(name)._drive(read(self._make(name).settings))

    def _opens(self, name: str) -> Queue:
        self.opened.append(name)
        return self._make(name)


def test_a_queue_of_many_can_be_opened(make_queue: Callable[..., Queue], capsys: pytest.CaptureFixture[str]):
    many = Many(make_queue, ["mail", "reports"])
    for name in ("mail", "reports"):
        make_queue(name).enqueue(1)
    many.top.look()

    press(many.top, "down", "enter")

    assert "queue reports at" in drawn(many.top, capsys)
    assert many.opened == ["reports"], "no other is opened"


def test_of_many_queues_only_those_on_the_screen_are_read(
    make_queue: Callable[..., Queue], capsys: pytest.CaptureFixture[str]
):
    names = [f"tenant{n:03}" for n in range(100)]
    many = Many(make_queue, names)
    many.top.screens[0].draw(13)

    many.top.look()
    first = drawn(many.top, capsys, 13)
    press(many.top, *["down"] * 98)

    assert "queues, 1 to 10 of 100" in first
    assert "queues, 91 to 100 of 100" in drawn(many.top, capsys, 13)
    assert many.read == names[90:]


def test_a_screen_of_all_queues_keeps_its_connection(make_queue: Callable[..., Queue], desk: Server):
    names = [make_queue(name).name for name in ("mail", "reports")]
    with all_queues(desk.unix_url) as through:
        screen = Queues(names, lambda some, read: read_each(some, desk.unix_url, read, through=through), make_queue)
        screen.look()
        with desk.requests() as requests:
            screen.look()
            screen.look()

    assert {request.name for request in requests} <= {"EVALSHA", "LRANGE"}, "no greeting"


def test_a_redis_that_does_not_respond_is_reported_and_the_screen_stays():
    with Server() as server, Queue("mail", redis=server.unix_url, retry_for=0) as queue:
        queue.enqueue(1)
        top = at(queue)
        server.kill()
        top.look()
        assert "server.sock" in top.status
        server.start()
        press(top, " ")
        assert top.status == OneQueue.hints


# -- numbers


def test_the_curve_has_a_bar_for_each_ten_seconds():
    def sample(at_ms: int, completed: int) -> Sample:
        facts: dict[str, Any] = dict.fromkeys(Sample.__slots__, 0)
        return Sample(**facts | {"at_ms": at_ms, "completed_total": completed})

    now = 1_800_000_000_000
    bars = curve([sample(now - 40_000, 0), sample(now - 20_000, 100), sample(now - 10_000, 400)], now)

    assert bars[-4:] == [5.0, 5.0, 30.0, 0.0]
    assert set(bars[:-4]) == {0.0}
    assert curve([], now) == [0.0] * 60


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (0.125, "0.12"), (1.5, "1.5"), (12.34, "12.3"), (1234.5, "1,234"), (100, "100")]
)
def test_rates_are_as_exact_as_their_size_asks(number: float, text: str):
    assert per_second(number) == text


def test_a_window_shows_the_chosen_row():
    assert window(3, 2, 10) == (0, 10)
    assert window(100, 99, 10) == (90, 10)
    assert window(100, 50, 10)[0] <= 50 < window(100, 50, 10)[0] + 10


# -- how much fits


def busy(queue: Queue) -> None:
    """Something in every list."""
    one_of_each(queue)
    for n in range(30):
        beat(queue, f"reports-7d4b9c6f5-{n}", running=1)


def on_paper(queue: Queue, columns: int, lines: int) -> list[str]:
    """The screen of a queue, as a terminal of this size has it above the status line."""
    paper = Console(width=columns, file=io.StringIO())
    paper.print(render.queue(queue.inspector.pulse(), "redis://localhost:6379/0", lines - 2))
    return paper.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def test_a_small_terminal_shows_everything(queue: Queue):
    busy(queue)

    lines = on_paper(queue, 80, 24)

    text = "\n".join(lines)
    for fact in ("NO PROMOTER", "start late by", "per second", "next due in", "slowest tasks", "failing tasks"):
        assert fact in text
    for fact in ("running longest", "30 live workers", "\nreports-7d4b9c6f5", "\nprocessing "):
        assert fact in text
    assert len(lines) <= 22
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(("columns", "lines", "workers"), [(120, 50, 15), (200, 50, 28)])
def test_a_large_terminal_shows_more(queue: Queue, columns: int, lines: int, workers: int):
    busy(queue)

    found = on_paper(queue, columns, lines)

    assert len(found) <= lines - 2
    assert sum("reports-7d4b9c6f5-" in line for line in found) >= workers


def test_lists_share_the_lines_that_are_left():
    assert shares([10, 1, 0, 5], 8) == [4, 1, 0, 3]
    assert shares([2, 1], 8) == [2, 1]
    assert shares([2, 1], -3) == [0, 0]


@pytest.mark.processes
def test_colors_are_for_terminals_that_want_them(queue: Queue, desk: Server):
    one_of_each(queue)

    colored = on_terminal("top", "mail", "--once", columns=80, lines=24)
    plain = on_terminal("top", "mail", "--once", columns=80, lines=24, NO_COLOR="1")

    assert re.search(r"\x1b\[[\d;]*31m", colored)
    assert not re.search(r"\x1b\[[\d;]*3\dm", plain)


# -- in a terminal


class Terminal:
    """A terminal in which the live screen runs."""

    def __init__(self, *words: str, lines: int = 40, columns: int = 120, **environment: str) -> None:
        self._ours, self._theirs = os.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(self._theirs)
        self.text = ""
        with open(self._theirs, "wb", buffering=0, closefd=False) as screen:
            known = os.environ | {"TERM": "xterm-256color"} | environment
            self.process = started_on(screen, "top", "--interval", "0.1", *words, environment=known)

    def read(self) -> None:
        while select.select([self._ours], [], [], 0.02)[0]:
            try:
                found = os.read(self._ours, 65536)
            except OSError:
                return
            if not found:
                return
            self.text += found.decode(errors="replace")

    def shows(self, text: str) -> None:
        """Wait until it shows a text."""

        def look() -> bool:
            self.read()
            return text in self.text

        until(look, within=120)

    def type(self, keys: bytes) -> None:
        self.text = ""
        os.write(self._ours, keys)

    def code(self) -> int:
        """Its exit code; read on meanwhile, or it can't write its last words."""
        until(self._has_ended, within=120)
        self.read()
        return self.process.wait(0)

    def _has_ended(self) -> bool:
        self.read()
        return self.process.poll() is not None

    @property
    def is_as_it_was(self) -> bool:
        return termios.tcgetattr(self._theirs) == self.before and self.text.endswith("\x1b[?25h\x1b[?1049l")

    def hang_up(self) -> None:
        os.close(self._theirs)
        os.close(self._ours)
        self._ours = self._theirs = -1

    def close(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        for fd in (self._ours, self._theirs):
            if fd >= 0:
                os.close(fd)


@contextmanager
def terminal(*words: str, lines: int = 40, columns: int = 120, **environment: str) -> Iterator[Terminal]:
    made = Terminal(*words, lines=lines, columns=columns, **environment)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.processes
def test_keys_act_in_a_terminal_and_the_terminal_is_restored(queue: Queue):
    queue.enqueue({"task": "send"})
    queue.fail(claimed(queue), Discard("\x1b]0;evil\x07bad"))
    with terminal("mail") as screen:
        screen.shows("queue mail at")
        assert termios.tcgetattr(screen._theirs) != screen.before

        screen.type(b"p")
        screen.shows("Pause queue mail? [y/N]")
        screen.type(b"y")
        screen.shows("PAUSED")
        screen.type(b"f\x1b[B\r")
        screen.shows("traceback" if "traceback" in queue.list_failed()[0].fields else "last error")
        assert "\x1b]0;" not in screen.text
        screen.type(b"\x1b\x1b")
        screen.shows("per second")
        screen.type(b"q")

        assert screen.code() == 0
        assert "\x1b[?1049l" in screen.text
        assert screen.is_as_it_was
    assert queue.stats()["paused_since_ms"] is not None


@pytest.mark.processes
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (200, 50)])
def test_the_live_screen_shows_its_last_list_and_all_keys(queue: Queue, columns: int, lines: int):
    busy(queue)
    with terminal("mail", lines=lines, columns=columns) as screen:
        screen.shows("30 live workers")
        screen.shows("reports-7d4b9c6f5-")
        screen.shows("q quit")
        screen.type(b"q")
        assert screen.code() == 0


@pytest.mark.processes
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_signals_restore_the_terminal(queue: Queue, number: signal.Signals, code: int):
    queue.enqueue(1)
    with terminal("mail") as screen:
        screen.shows("queue mail at")

        screen.process.send_signal(number)

        assert screen.code() == code
        assert screen.is_as_it_was


@pytest.mark.processes
def test_a_terminal_that_is_closed_ends_it(queue: Queue):
    queue.enqueue(1)
    with terminal("mail") as screen:
        screen.shows("queue mail at")

        screen.hang_up()

        assert screen.process.wait(120) != 0
