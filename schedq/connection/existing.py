"""Which of many keys exist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from redis import exceptions

from schedq.connection import redis_errors

_MOVES: Final = (exceptions.MovedError, exceptions.AskError, exceptions.TryAgainError)


@dataclass
class Existing:
    """Which keys exist.

    Attributes:
        keys: those that do.
        hidden: how many this user may not look for.
    """

    keys: set[str] = field(default_factory=set)
    hidden: int = 0

    def add(self, keys: Sequence[str], replies: Sequence[Any], where: str) -> list[str]:
        """Add what Redis replied to EXISTS for each key; return the keys that are on another node.

        Raises:
            SchedqError: Redis replied another error.
        """
        moved = []
        for key, reply in zip(keys, replies, strict=True):
            if isinstance(reply, _MOVES):
                moved.append(key)
            elif isinstance(reply, exceptions.NoPermissionError):
                self.hidden += 1
            elif isinstance(reply, Exception):
                raise redis_errors.translate(reply, "EXISTS", where)
            elif reply:
                self.keys.add(key)
        return moved
