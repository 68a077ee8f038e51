"""Pages of a server's keys, scanned once for all queues of an examination.

SCAN visits the keys of all queues. If each of a thousand queues went through the same pages for its own keys, the
examination would take a thousand times as long as the pages do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from schedq.doctor.checks import plain
from schedq.errors import SchedqError
from schedq.transitions import Operation

Execute = Callable[[Sequence[Operation[Any]]], Sequence[Any]]
_ANY_QUEUE = "queue:*"
_BEGINNING = "0"
"""The cursor of the first page, and the one that follows the last."""


class KeyPages:
    """The pages that have been scanned, by the cursor at which they begin.

    A queue gets all pages that are known at once: those that follow each other from the beginning are kept together.
    """

    def __init__(self) -> None:
        self._pages: dict[str, tuple[str, dict[str, list[str]]]] = {}
        self._known: dict[str, list[str]] = defaultdict(list)
        self._end = _BEGINNING

    def execute(self, operations: Sequence[Operation[Any]], execute: Execute) -> list[Any]:
        """The replies to operations of many queues, of which those that scan share pages."""
        sizes = {_cursor(it): it.args[5] for it in operations if it.name == "scan"}
        cursors = sorted(sizes.keys() - self._pages.keys())
        scans = [plain("SCAN", cursor, "MATCH", _ANY_QUEUE, "COUNT", sizes[cursor]) for cursor in cursors]
        replies = execute([*scans, *(it for it in operations if it.name != "scan")])
        refused: dict[str, SchedqError] = {}
        for cursor, reply in zip(cursors, replies, strict=False):
            if isinstance(reply, SchedqError):
                refused[cursor] = reply
            else:
                self._add(cursor, reply[0], _by_queue(reply[1]))
        rest = iter(replies[len(scans) :])
        return [
            next(rest) if it.name != "scan" else refused.get(_cursor(it)) or self._reply(_cursor(it), str(it.args[3]))
            for it in operations
        ]

    def _add(self, cursor: str, following: str, page: dict[str, list[str]]) -> None:
        self._pages[cursor] = following, page
        if cursor == self._end:
            self._end = following
            for queue, keys in page.items():
                self._known[queue] += keys

    def _reply(self, cursor: str, pattern: str) -> tuple[str, list[str]]:
        prefix = pattern.removesuffix("*")
        queue = _queue(prefix)
        if cursor == _BEGINNING:
            following, found = self._end, self._known.get(queue, [])
        else:
            following, page = self._pages[cursor]
            found = page.get(queue, [])
        return following, [key for key in found if key.startswith(prefix)]


def _cursor(scan: Operation[Any]) -> str:
    return str(scan.args[1])


def _queue(key: str) -> str:
    """The part of a key that names its queue."""
    return key.split(":", 2)[1]


def _by_queue(keys: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        found[_queue(key)].append(key)
    return found
