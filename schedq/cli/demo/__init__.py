"""`schedq demo`: real work on a real server, a killed worker, and a verdict on all of it."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

import schedq

if TYPE_CHECKING:
    from rich.console import Console

SHORTEST_S: Final = 8
NEEDED: Final = {"PIL": "Pillow", "httpx": "httpx", "aiosmtpd": "aiosmtpd"}


@click.command(epilog="Example:  schedq demo --seconds 30")
@click.option("--seconds", default=20.0, show_default=True, metavar="N", help="How long the work is spread over.")
def demo(seconds: float) -> None:
    """Watch schedq work: pictures now, mail later, webhooks that fail at first, and a worker that is killed.

    Needs nothing but the extra: pip install 'schedq[demo]'. Starts a server of its own in a temporary folder
    and leaves nothing behind. Exit code 0 only if everything was delivered, nothing was early, and the killed
    worker's job was finished by the other.
    """
    if not SHORTEST_S <= seconds <= 3600:
        raise click.BadParameter(
            f"{seconds:g} is not within {SHORTEST_S} and 3600; "
            f"a job that is killed, found lost and done again takes {SHORTEST_S} s",
            param_hint="--seconds",
        )
    sys.path.insert(0, str(examples_folder()))
    with endings_as_interrupts():
        _play(seconds)


def _play(seconds: float) -> None:
    # Only now: the other commands need neither this nor the extra.
    from schedq.cli.demo.run import run
    from schedq.cli.demo.stage import Mishap

    try:
        is_good = run(examples_folder(), seconds, _console())
    except Mishap as mishap:
        raise click.ClickException(str(mishap)) from mishap
    if not is_good:
        raise click.exceptions.Exit(1)


def _console() -> Console:
    from rich.console import Console

    console = Console()
    # Without a terminal rich takes 80 columns; logs and pipes have room for more.
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=120)


def examples_folder() -> Path:
    """Where the example application is: beside the package in a checkout, inside it when installed.

    Raises:
        click.ClickException: nowhere, or something that it needs is not installed.
    """
    missing = [name for module, name in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise click.ClickException(f"the demo needs {', '.join(missing)}: pip install 'schedq[demo]'")
    package = Path(schedq.__file__).parent
    for folder in (package.parent / "examples", package / "examples"):
        if (folder / "app.py").exists() and (folder / "pictures").is_dir():
            return folder
    raise click.ClickException(f"there is no examples folder beside or in {package}")


@contextmanager
def endings_as_interrupts() -> Iterator[None]:
    """Make SIGTERM and SIGHUP what Ctrl-C is, so that they clean up too; put everything back at the end."""
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
