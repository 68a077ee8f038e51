"""The one-line warnings of every command, apart from `output`, which loads what draws tables."""

from __future__ import annotations

import click

from schedq.model.escaping import harmless


def warn(text: str) -> None:
    """Print one line on stderr."""
    click.echo(harmless(f"schedq: {text}"), err=True)
