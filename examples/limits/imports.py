"""Imports of an account run one at a time, in order. While one is being retried, later ones wait."""

from __future__ import annotations

from schedq import Fixed, Queue

queue = Queue("imports")
ledger: dict[str, list[str]] = {}
"""The files that each account has; stands for a database."""


@queue.task(serial=True, key="account", max_attempts=5, backoff=Fixed(30))
def load(account: str, file: str) -> None:
    """Read a file into an account. Files of other accounts are loaded meanwhile."""
    read(file)
    ledger.setdefault(account, []).append(file)


def read(file: str) -> None:
    """Stands for reading the file from a share that may be away."""
    print(f"read {file}")
