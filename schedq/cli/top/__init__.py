"""`schedq top`: the command, its keyboard and its terminal."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import cache
from types import FrameType
from typing import Final

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.segment import SegmentLines
from rich.text import Text

from schedq.cli import output
from schedq.cli.params import json_option, redis_option
from schedq.cli.queue_argument import ExplicitQueueCommand, queue_argument
from schedq.cli.queues import all_names, all_queues, must_be_known, open_queue, read_each
from schedq.cli.top.app import App, OneQueue, Queues, Screen
from schedq.model import escaping
from schedq.model.times import monotonic

_PRINTED: Final = 60
"""Height of a screen that is printed, in lines: enough to show everything."""
_BELOW: Final = 2
"""Lines of the terminal that the status line and the cursor occupy."""
_SEQUENCE_S: Final = 0.05
"""A byte that follows an escape this quickly belongs to its sequence: no person types that fast."""
_MOST: Final = 64
_NAMED: Final = {
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[C": "enter",
    b"\x1bOC": "enter",
    b"\x1b[D": "back",
    b"\x1bOD": "back",
    b"\x1b": "back",
    b"\x7f": "back",
    b"\x08": "back",
    b"\r": "enter",
    b"\n": "enter",
}
_ENDINGS: Final = (signal.SIGTERM, signal.SIGHUP)


@click.command(
    cls=ExplicitQueueCommand,
    epilog="""\b
Examples:
  schedq top
  schedq top emails --interval 0.5
  schedq top emails --once""",
)
@queue_argument(required=False)
@click.option("--once", is_flag=True, help="Print one screen and exit.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between refreshes.",
)
@redis_option
@json_option
def top(name: str | None, once: bool, interval: float, redis_url: str | None, as_json: bool) -> None:
    """Show a live screen of the queue NAME, or of all queues, from which you can open one.

    Keys: p pauses and resumes; r requeues failed jobs; w d x f c list the pending, delayed, running, failed and
    completed jobs. In a list, arrows and Enter open a job, r requeues it, n runs it now, and k cancels it. Actions ask
    for confirmation. Esc goes back, q quits. Rates come from samples that a promoter takes every 10 s, start and run
    times and tasks from what workers counted and reported every 10 s. --json prints the data once.
    """
    with ExitStack() as stack:
        opened = cache(lambda one: stack.enter_context(open_queue(one, redis_url)))
        names = [name] if name is not None else all_names(redis_url)
        if name is not None:
            must_be_known(opened(name), redis_url)
        if as_json:
            found = [asdict(opened(one).inspector.pulse()) for one in names]
            output.show_json(found[0] if name is not None else {"queues": found})
            return
        if len(names) == 1:
            screen: Screen = OneQueue(opened(names[0]))
        else:
            through = stack.enter_context(all_queues(redis_url))
            screen = Queues(names, lambda some, read: read_each(some, redis_url, read, through=through), opened)
        if once:
            screen.look()
            output.show(screen.draw(_PRINTED))
        elif not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise click.UsageError("the live screen needs a terminal; use --once to print it once, or --json")
        else:
            _run(App(screen), interval)


class _HungUpError(Exception):
    """The terminal was closed."""


@contextmanager
def _single_keys() -> Iterator[None]:
    """Read single keys without echo; Ctrl-C keeps working. SIGTERM and SIGHUP restore the terminal too."""
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    handlers = {number: signal.signal(number, _exit_on_signal) for number in _ENDINGS}
    try:
        now = termios.tcgetattr(fd)
        now[3] &= ~(termios.ICANON | termios.ECHO)
        # No Ctrl-Z: a stopped process would leave the terminal in this mode.
        now[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(fd, termios.TCSADRAIN, now)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class _Keyboard:
    """Standard input, key by key."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._ahead = b""

    def pressed(self, wait_s: float) -> str | None:
        """The next key, as its name or character; None if none is pressed within `wait_s` seconds.

        Raises:
            _HungUpError: the terminal was closed.
        """
        found = self._byte(wait_s)
        if found == b"\x1b":
            following = self._byte(_SEQUENCE_S)
            if following in (b"[", b"O"):
                found += following + self._rest()
            elif following is not None:
                self._ahead = following
        return None if found is None else _NAMED.get(found) or found.decode(errors="replace")

    def _byte(self, wait_s: float) -> bytes | None:
        if self._ahead:
            found, self._ahead = self._ahead, b""
            return found
        if not select.select([self._fd], [], [], max(0.0, wait_s))[0]:
            return None
        try:
            found = os.read(self._fd, 1)
        except OSError as error:
            raise _HungUpError from error
        if not found:
            raise _HungUpError
        return found

    def _rest(self) -> bytes:
        """The rest of an escape sequence, up to its final letter or tilde."""
        found = b""
        while len(found) < _MOST and (byte := self._byte(_SEQUENCE_S)) is not None:
            found += byte
            if byte.isalpha() or byte == b"~":
                break
        return found


def _run(app: App, interval_s: float) -> None:
    """Show the screens until `q`, Ctrl-C, SIGTERM or SIGHUP, then restore the terminal."""
    console = output.Console()
    with (
        suppress(KeyboardInterrupt, _HungUpError),
        _single_keys(),
        Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        keyboard = _Keyboard()
        while not app.is_over:
            app.look()
            live.update(_screen(app, console), refresh=True)
            _handle_keys(keyboard, app, live, console, 0.0 if app.is_working else interval_s)


def _handle_keys(keyboard: _Keyboard, app: App, live: Live, console: output.Console, seconds: float) -> None:
    """Handle keys for `seconds`, or until one opens another screen or starts work."""
    ends_at = monotonic() + seconds
    while (key := keyboard.pressed(ends_at - monotonic())) is not None:
        screen = app.screens[-1]
        app.press(key)
        if app.is_over or app.is_working or app.screens[-1] is not screen or key in ("up", "down", " "):
            return
        live.update(_screen(app, console), refresh=True)


def _screen(app: App, console: output.Console) -> RenderableType:
    """The screen, cut to the terminal, above the status line."""
    lines = max(1, console.size.height - _BELOW)
    shown = console.render_lines(app.screens[-1].draw(lines), console.options.update(height=None), pad=False)
    status = Text(escaping.harmless(app.status), style="reverse", no_wrap=True, overflow="ellipsis")
    return Group(SegmentLines(shown[:lines], new_lines=True), *[""] * (lines - len(shown)), status)
