"""`schedq demo`: real work on a real server, a killed worker, and a verdict on all of it.

The application is in app.py, receivers.py receives its webhooks and mail, and the other modules run it and check the
outcome. Start with run.py.
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
        click.ClickException: an optional dependency is missing, or the demo could not be completed.
        click.exceptions.Exit: a check failed; the summary says which.
    """
    missing = [name for module, name in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise click.ClickException(f"the demo needs {', '.join(missing)}: pip install -e '.[demo]'")
    with endings_as_interrupts():
        # Imported late: it needs the extra.
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
    # Without a terminal rich assumes 80 columns; logs and pipes have room for more.
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=120)


@contextmanager
def endings_as_interrupts() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C, so that they clean up as well; restore all handlers at the end."""
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
