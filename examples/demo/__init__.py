"""`schedq demo`: real work on a real server, a killed worker, and a verdict on all of it.

The application is in app.py, receivers.py gets its webhooks and mail, and the other modules let it run and check what
came of it. Start with run.py.
"""

from __future__ import annotations

import importlib.util
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

import click
from rich.console import Console

NEEDED: Final = {"PIL": "Pillow", "httpx": "httpx", "aiosmtpd": "aiosmtpd"}


def start(seconds: float) -> None:
    """Run the demo.

    Raises:
        click.ClickException: what it needs is not installed, or it could not be finished.
        click.exceptions.Exit: something was not as it should be; the summary says what.
    """
    missing = [name for module, name in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise click.ClickException(f"the demo needs {', '.join(missing)}: pip install -e '.[demo]'")
    with endings_as_interrupts():
        # Only now: it needs the extra.
        from demo.run import run
        from demo.sandbox import DemoError

        try:
            is_good = run(seconds, _console())
        except DemoError as error:
            raise click.ClickException(str(error)) from error
    if not is_good:
        raise click.exceptions.Exit(1)


def _console() -> Console:
    console = Console()
    # Without a terminal rich takes 80 columns; logs and pipes have room for more.
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=120)


@contextmanager
def endings_as_interrupts() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that they clean up too; restore all handlers at the end."""
    endings = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {ending: signal.getsignal(ending) for ending in endings}

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    for ending in endings:
        signal.signal(ending, interrupt)
    try:
        yield
    finally:
        for ending, handler in before.items():
            signal.signal(ending, handler)
