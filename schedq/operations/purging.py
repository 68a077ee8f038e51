"""Deleting every job of a queue, page by page, with one line of the log about it."""

from __future__ import annotations

from typing import Any, Final

from schedq import lua
from schedq.ids import new_request
from schedq.operations import Argument, Flow, Operation, firm
from schedq.operations.acting import note
from schedq.settings import Settings

_PAGE: Final = 250


class Purge:
    """One purge: `steps` does it, and `note` puts on record what was deleted, whatever ended it.

    Attributes:
        gone: jobs deleted so far.
    """

    def __init__(self, queue: Settings, who: str | None = None) -> None:
        self.gone = 0
        self._queue = queue
        self._who = who
        self._request = new_request()
        self._began: Argument = ""

    def note(self) -> Operation[int]:
        """The line of the log."""
        said = f"the whole queue: {self.gone} deleted"
        return note(self._queue, self._request, "purge", self.gone, said, self._who)

    def steps(self) -> Flow[int]:
        """Delete every job that was there when this began; answers how many.

        Places are emptied in the order in which jobs move, and those of live jobs again until they hold no more of
        them: a job may have come back from where it ran.
        """
        keys = self._queue.keys
        live = ((keys.delayed, "zset"), (keys.pending, "pending"), (keys.processing, "list"))
        ended = ((keys.completed, "list"), (keys.failed, "list"), (keys.cancelled, "list"), (keys.broken, "notes"))
        is_live = True
        for places in (live, live, live, ended):
            if places is live and not is_live:
                continue
            before = self.gone
            for place, kind in places:
                yield from self._empty(place, kind)
            is_live = self.gone > before
        return self.gone

    def _empty(self, place: str, kind: str) -> Flow[None]:
        offset, has_more = 0, True
        while has_more:
            (answer,) = yield [purge_page(self._queue, place, kind, self._began, offset)]
            self._began, offset, gone, more = firm(answer)
            self.gone += gone
            has_more = bool(more)


def purge_page(queue: Settings, place: str, kind: str, began: Argument, offset: int) -> Operation[list[Any]]:
    """Delete a page of a place: see `purge.lua`."""
    keys = queue.keys
    return Operation(
        "purge",
        lua.load("purge"),
        (place, keys.leases, keys.stats),
        (keys.jobs, queue.now_argument(), began, offset, _PAGE, kind),
        list,
    )
