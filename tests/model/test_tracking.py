"""A loop that reports how far it has come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator

import pytest

from schedq import Progress, UsageError, track
from schedq.testing import as_job


def counted(number: int) -> Iterator[int]:
    yield from range(number)


async def pages(number: int) -> AsyncIterator[int]:
    for page in range(number):
        yield page


class Sizeless(list[int]):
    """Some iterables have a `__len__` that raises."""

    def __len__(self) -> int:
        raise TypeError("no size")


@pytest.mark.parametrize(
    ("items", "total"), [([0, 1, 2], 3), (range(3), 3), (counted(3), None), ({0: 0, 1: 0, 2: 0}, 3)]
)
def test_after_each_item_the_items_that_are_done_are_reported(items: Iterable[int], total: int | None):
    with as_job() as job:
        seen = [(item, job.last_progress) for item in track(items)]

    assert seen == [(number, Progress(number, total)) for number in range(3)]
    assert job.last_progress == Progress(3, total)


def test_the_total_and_a_note_may_be_given():
    with as_job() as job:
        assert [*track(counted(3), 3, note="rows")] == [0, 1, 2]

    assert job.last_progress == Progress(3, 3, "rows")


def test_an_iterable_whose_length_raises_has_no_total():
    with as_job() as job:
        assert [*track(Sizeless([1, 2]))] == [1, 2]

    assert job.last_progress == Progress(2)


def test_nothing_is_already_done():
    with as_job() as job:
        assert [*track([])] == []

    assert job.last_progress == Progress(0, 0)
    assert Progress(0, 0).fraction == 1


def test_the_item_at_which_a_loop_ends_early_is_not_done():
    with as_job() as job:
        for number in track(range(10)):
            if number == 4:
                break

    assert job.last_progress == Progress(4, 10)


def test_an_async_iterable_is_tracked_by_async_for():
    async def handler() -> list[int]:
        return [page async for page in track(pages(3), 3)]

    with as_job() as job:
        assert asyncio.run(handler()) == [0, 1, 2]

    assert job.last_progress == Progress(3, 3)


def test_outside_a_handler_it_only_iterates():
    async def main() -> list[int]:
        return [page async for page in track(pages(3))]

    assert [*track(counted(3))] == [0, 1, 2]
    assert asyncio.run(main()) == [0, 1, 2]


def test_a_wrong_total_is_refused_before_the_first_item():
    with as_job(), pytest.raises(UsageError, match="total must be a finite number of at least 0, got 'many'"):
        track([1], "many")  # type: ignore[call-overload]
