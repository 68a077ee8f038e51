"""`schedq demo`: starts the demo in a checkout's examples/demo."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Final

import click

import schedq

_SHORTEST_S: Final = 8


@click.command(epilog="Example:  schedq demo --seconds 30")
@click.option("--seconds", default=20.0, show_default=True, metavar="N", help="How long the work is spread over.")
def demo(seconds: float) -> None:
    """Watch schedq work: pictures now, mail later, webhooks that fail at first, and a worker that is killed.

    Runs in a checkout of schedq's source and needs only the extra: pip install -e '.[demo]'. Starts its own server in
    a temporary folder and leaves nothing behind. The exit code is 0 only if everything was delivered, nothing ran
    early, and another worker finished the killed worker's job.
    """
    if not _SHORTEST_S <= seconds <= 3600:
        raise click.BadParameter(
            f"{seconds:g} is not between {_SHORTEST_S} and 3600; "
            f"killing a worker, reclaiming its job and running it again takes {_SHORTEST_S} s",
            param_hint="--seconds",
        )
    checkout = Path(schedq.__file__).parents[1]
    if not ((checkout / "pyproject.toml").exists() and (checkout / "examples" / "demo" / "__init__.py").exists()):
        raise click.ClickException(
            "the demo is in schedq's source, in examples/demo, and not in the installed package: run scripts/demo in a "
            "checkout"
        )
    sys.path.insert(0, str(checkout / "examples"))
    importlib.import_module("demo").start(seconds)
