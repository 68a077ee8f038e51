"""Which of several worker processes claims the next jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from schedq.model.ids import new_request
from schedq.transitions import claim
from schedq.worker import siblings
from schedq.worker.siblings import SIBLINGS, Board, Share, Siblings
from tests.doors import Handle

SIZE = 4


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    """The records of three processes, at one moment."""
    monkeypatch.setattr("schedq.worker.siblings.monotonic", lambda: 100.0)
    board = Board.create(3)
    assert board is not None
    yield board
    os.close(board.fd)


def process(board: Board, number: int, held: int = 0) -> tuple[Siblings, list[int]]:
    """One of them, and the jobs that it holds."""
    jobs = [0] * held
    made = Siblings(board, number, SIZE)
    made.join(jobs)
    return made, jobs


def test_a_process_without_siblings_shares_with_none(board: Board):
    alone, _ = process(board, 0, held=2)

    assert (alone.share(), alone.wait_s()) == (None, 0)


def test_a_claim_gets_the_number_of_jobs_that_all_hold(board: Board):
    first, _ = process(board, 0, held=1)
    process(board, 1, held=2)
    board.starting(2)

    assert first.share() == Share(3, 3, 1)


@pytest.mark.parametrize("held", [SIZE, SIZE + 1])
def test_a_process_whose_slots_are_full_does_not_take_part(board: Board, held: int):
    first, _ = process(board, 0, held=1)
    process(board, 1, held=held)

    assert first.share() is None


def test_a_process_that_holds_fewer_jobs_may_claim_first_for_a_moment(board: Board, monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr("schedq.worker.siblings.monotonic", lambda: now)
    first, _ = process(board, 0, held=2)
    second, jobs = process(board, 1, held=1)

    assert (first.wait_s(), second.wait_s()) == (pytest.approx(siblings.PATIENCE_S), 0)
    now += siblings.PATIENCE_S / 2
    assert first.wait_s() == pytest.approx(siblings.PATIENCE_S / 2)
    jobs.append(0)
    second.tell()
    assert first.wait_s() == 0


def test_a_process_that_does_not_claim_is_not_waited_for_until_it_claims_again(
    board: Board, monkeypatch: pytest.MonkeyPatch
):
    now = 100.0
    monkeypatch.setattr("schedq.worker.siblings.monotonic", lambda: now)
    first, _ = process(board, 0, held=2)
    second, _ = process(board, 1)
    assert first.wait_s() > 0

    now += siblings.PATIENCE_S + 0.01
    assert (first.wait_s(), first.wait_s(), first.share()) == (0, 0, None)
    second.claimed()

    assert first.wait_s() == pytest.approx(siblings.PATIENCE_S)
    assert first.share() == Share(2, 2, 2)


def test_a_starting_process_is_waited_for_longer_and_an_ended_one_not_at_all(board: Board):
    first, _ = process(board, 0, held=1)

    board.starting(1)
    assert first.wait_s() == pytest.approx(siblings.START_PATIENCE_S)
    board.gone(1)
    assert first.wait_s() == 0


def test_a_stopping_process_is_not_counted_even_if_it_updates_its_record(board: Board):
    first, _ = process(board, 0, held=1)
    second, _ = process(board, 1)

    second.leave()
    second.tell()
    second.claimed()

    assert (first.wait_s(), first.share()) == (0, None)


@pytest.mark.parametrize("words", ["", "7", "9999 0", "x y", "{other} 0"])
def test_a_process_without_siblings_is_not_misled_by_its_environment(words: str, monkeypatch: pytest.MonkeyPatch):
    with open(__file__, "rb") as other:
        monkeypatch.setenv(SIBLINGS, words.format(other=other.fileno()))

        assert Siblings.of_this_process(SIZE) is None
        assert SIBLINGS not in os.environ
        os.fstat(other.fileno())


@pytest.mark.parametrize(
    ("waiting", "share", "taken"),
    [
        (4, (2, 0, 0), 2),
        (2, (2, 2, 0), 2),
        (4, (3, 0, 0), 1),
        (3, (2, 1, 1), 1),
        (1, (2, 6, 3), 1),
        (40, (2, 8, 4), 10),
        (4, None, 4),
    ],
)
def test_a_claim_takes_its_share_of_few_jobs_and_fills_its_slots_from_many(
    queue: Handle, waiting: int, share: tuple[int, int, int] | None, taken: int
):
    queue.enqueue_many(range(waiting))

    got = queue._ask(claim.claim(queue.settings, new_request(), 10, share=share))

    assert (len(got.jobs), got.has_more) == (taken, waiting > taken)
