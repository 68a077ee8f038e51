"""The live screen: looks, draws, and hears keys, until somebody leaves."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from schedq.cli import show
from schedq.cli.top.desk import Desk
from schedq.cli.top.keys import HungUpError, Keyboard, single_keys
from schedq.clocks import monotonic

_BELOW: Final = 2


def run(desk: Desk, interval_s: float) -> None:
    """Until `q`, Ctrl-C, SIGTERM or the end of the terminal; leaves it as it was."""
    console = show.Console()
    with (
        suppress(KeyboardInterrupt, HungUpError),
        single_keys(),
        Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        keyboard = Keyboard()
        while not desk.is_over:
            desk.look()
            live.update(_screen(desk, console), refresh=True)
            _hear(keyboard, desk, live, console, 0.0 if desk.is_working else interval_s)


def _hear(keyboard: Keyboard, desk: Desk, live: Live, console: Console, seconds: float) -> None:
    """Take keys for so long; one that opens something else, or starts work, ends the wait."""
    ends_at = monotonic() + seconds
    while (key := keyboard.pressed(ends_at - monotonic())) is not None:
        view = desk.views[-1]
        desk.press(key)
        if desk.is_over or desk.is_working or desk.views[-1] is not view or key in ("up", "down", " "):
            return
        live.update(_screen(desk, console), refresh=True)


def _screen(desk: Desk, console: Console) -> RenderableType:
    """The view, cut to the terminal, above the status line."""
    lines = max(1, console.size.height - _BELOW)
    shown = console.render_lines(desk.views[-1].draw(lines), console.options.update(height=None), pad=False)
    status = Text(show.harmless(desk.status), style="reverse", no_wrap=True, overflow="ellipsis")
    return Group(*(_Line(line) for line in shown[:lines]), *[""] * (lines - len(shown)), status)


class _Line:
    """A line that was rendered before."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._segments
        yield Segment.line()
