"""What the children of a batch returned."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from schedq.errors import JobGone
from schedq.model.groups import BatchProgress, ChildFailure
from schedq.model.placeholder import QUEUE, REFERENCE
from schedq.model.settings import Settings
from schedq.queue.requests import Connections
from schedq.transitions import RoundTrips, groups

T = TypeVar("T")
_PAGE: Final = 1000


class BatchResults(Generic[T]):
    """What the children of a batch returned, in the order of the children, read 1000 at a time.

    Iterate over it with `for`, which blocks, or with `async for`. Children that failed are left out.

    Attributes:
        id: the batch.
    """

    def __init__(self, connections: Connections, batch_id: str) -> None:
        self.id = batch_id
        self._connections = connections

    def __repr__(self) -> str:
        return f"BatchResults({self.id!r})"

    def __iter__(self) -> Iterator[T]:
        for page in self._pages():
            yield from (value for _, value in page)

    async def __aiter__(self) -> AsyncIterator[T]:
        start, total = 0, (await self._connections.aio.drive(progress_of(self._connections.settings, self.id))).total
        while start < total:
            page, start = await self._connections.aio.drive(groups.results(self._connections.settings, self.id, start))
            for _, value in page:
                yield value

    def numbered(self) -> Iterator[tuple[int, T]]:
        """Iterate over pairs: the number of a child, from 0 on, and what it returned."""
        for page in self._pages():
            yield from page

    def failures(self) -> Iterator[ChildFailure]:
        """Iterate over the children that failed."""
        offset, drive = 0, self._connections.blocking.drive
        while page := drive(groups.failures(self._connections.settings, self.id, offset, _PAGE)):
            yield from page
            offset += len(page)

    def progress(self) -> BatchProgress:
        """Return how many children there are, and how many of them completed and failed."""
        return self._connections.blocking.drive(progress_of(self._connections.settings, self.id))

    def _pages(self) -> Iterator[list[tuple[int, Any]]]:
        start, total = 0, self.progress().total
        while start < total:
            page, start = self._connections.blocking.drive(groups.results(self._connections.settings, self.id, start))
            yield page


def results_of(connections: Connections, reference: Mapping[str, Any]) -> BatchResults[Any]:
    """The results that a value in the arguments of a job stands for; of a batch of the same queue if it names none."""
    queue = reference.get(QUEUE)
    return BatchResults(connections if queue is None else connections.of_queue(queue), reference[REFERENCE])


def progress_of(queue: Settings, name: str) -> RoundTrips[BatchProgress]:
    """How far a batch is.

    Raises:
        JobGone: nothing is stored under this id.
    """
    found = yield from groups.progress(queue, name)
    if found is None:
        raise JobGone(f"queue {queue.name} has no batch {name}: it was deleted, or never existed")
    return found
