"""Whether what was answered about one job can have happened in some order, each request at one instant.

The job machine of `schedq.model.lifecycle` is the object, a Wing & Gong search over orders the method (Wing & Gong,
"Testing and verifying concurrent objects", 1993); jobs are independent, so each is looked at alone. A request that
was never answered may have been carried out at any time after it was sent, or not at all. Nobody asks for the end of a
lease: it may come when the lease can have ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from schedq.model.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, FINISHED, NOWHERE, PENDING, PROCESSING

FREE_RELEASES: Final = 5
SUSPECT: Final = 2
"""Leases that a job has lost which may be the reason why its workers die."""
UNKNOWN: Final = "unknown"
FOREVER: Final = math.inf
MOST_STATES: Final = 200_000
"""How many a search looks at before it gives up; histories of a run need hundreds."""


class TooLongError(Exception):
    """Whether a history is legal could not be found out."""


@dataclass(frozen=True, slots=True)
class Op:
    """One request about a job, or one thing that was seen of it.

    Attributes:
        verb: enqueue, claim, settle, renew, taken, cancel, reschedule, requeue; `seen` is its place in the end.
        began: instant, seconds, before it was sent.
        ended: instant after the answer; FOREVER if there was none.
        answer: as the verb's; UNKNOWN if there was none.
        token: of a claim, renew or settle.
        move: of a settle.
        number: the attempt, of a claim; most attempts, of an enqueue.
        delay_ms: until it is due: of an enqueue, a reschedule, a settle; None for at once.
        sendings: how often it was sent, as far as is known.
    """

    verb: str
    began: float
    ended: float
    answer: str
    token: str = ""
    move: str = ""
    number: int = 0
    delay_ms: int | None = None
    sendings: int = 1


@dataclass(frozen=True, slots=True)
class State:
    """Where the job is, as far as the machine needs it."""

    place: str = NOWHERE
    attempts: int = 0
    most: int = 0
    token: str = ""
    leased_at: float = 0.0
    is_stopped: bool = False
    released: int = 0
    crashes: int = 0
    settled: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Law:
    """What the search needs to know of the run.

    Attributes:
        most_attempts: of the queue.
        can_end: whether a lease that began no earlier than the first instant can have ended by the second.
        may_be_claimed: whether a claim was sent, and not answered, that can have been carried out between two instants.
    """

    most_attempts: int
    can_end: Callable[[float, float], bool] = field(default=lambda since, until: True)
    may_be_claimed: Callable[[float, float], bool] = field(default=lambda since, until: False)


def is_legal(ops: Sequence[Op], law: Law) -> bool:
    """Whether there is an order.

    Raises:
        TooLongError: the search has become too long to say.
    """
    ordered = sorted(ops, key=lambda op: (op.began, op.ended))
    must = sum(1 << n for n, op in enumerate(ordered) if op.answer != UNKNOWN)
    seen: set[tuple[int, State]] = set()
    stack: list[tuple[int, State]] = [(0, State())]
    while stack:
        done, state = stack.pop()
        if must & ~done == 0:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        if len(seen) > MOST_STATES:
            raise TooLongError(f"more than {MOST_STATES} states of a history of {len(ops)} operations")
        for number in _next(ordered, done):
            op = ordered[number]
            stack += [(done | 1 << number, after) for after in after_op(state, op, law)]
    return False


def _next(ops: Sequence[Op], done: int) -> Iterator[int]:
    """Which may come next: none that was sent after another one, that is still to come, was answered."""
    limit = min((op.ended for n, op in enumerate(ops) if not done >> n & 1), default=FOREVER)
    for number, op in enumerate(ops):
        if op.began > limit:
            return
        if not done >> number & 1:
            yield number


def after_op(state: State, op: Op, law: Law) -> Iterator[State]:
    """The states that the request can lead to with its answer, also after what nobody asked for had happened."""
    for before in _drifts(state, op, law):
        yield from _VERBS[op.verb](before, op, law)


def _drifts(state: State, op: Op, law: Law) -> Iterator[State]:
    """The state, and what it can have become by itself: leases end, claims take jobs unanswered, or set them aside."""
    yield state
    if state.place == PROCESSING and law.can_end(state.leased_at, op.ended):
        back = _taken_back(state, law)
        yield back
        yield from _ghosts(back, op, law)
    elif state.place in (PENDING, DELAYED):
        yield from _ghosts(state, op, law)
        if state.place == PENDING and state.crashes >= SUSPECT:
            yield replace(state, place=DELAYED)  # a claim that may not have it sets it aside


def _ghosts(state: State, op: Op, law: Law) -> Iterator[State]:
    """Claims of processes that died, or were cut off, before they heard what they got."""
    since = state.leased_at
    for _ in range(3):
        if state.place not in (PENDING, DELAYED) or not law.may_be_claimed(since, op.ended):
            return
        state = replace(state, place=PROCESSING, token="?", attempts=state.attempts + 1)
        yield state
        if not law.can_end(since, op.ended):
            return
        state = _taken_back(state, law)
        yield state


def _taken_back(state: State, law: Law) -> State:
    crashes = state.crashes + 1
    attempts = max(state.attempts, crashes)
    place = PENDING if crashes < SUSPECT else DELAYED  # a suspect waits
    if state.is_stopped:
        place = CANCELLED
    elif attempts >= (state.most or law.most_attempts):
        place = FAILED
    return replace(
        state,
        place=place,
        attempts=attempts,
        crashes=crashes,
        token="",
        is_stopped=False,
        settled=(state.token, "reclaim"),
    )


def _enqueue(state: State, op: Op, law: Law) -> Iterator[State]:
    if op.answer == "full":
        if state.place == NOWHERE:
            yield state
    elif state.place == NOWHERE:
        yield State(PENDING if op.delay_ms is None else DELAYED, most=op.number, leased_at=op.began)


def _claim(state: State, op: Op, law: Law) -> Iterator[State]:
    if state.place in (PENDING, DELAYED) and op.number == state.attempts + 1:
        yield replace(state, place=PROCESSING, token=op.token, attempts=op.number, leased_at=op.began)


def _settle(state: State, op: Op, law: Law) -> Iterator[State]:
    holds = state.place == PROCESSING and state.token == op.token
    mine = (op.token, op.move)
    can_have_effect = op.answer in ("OK", "DUPLICATE", UNKNOWN) or op.sendings > 1
    if holds and can_have_effect:
        yield _settled(state, op, mine)
    if op.answer == "DUPLICATE" and state.settled == mine:
        yield state
    if op.answer == "LOST" and not holds:
        yield state


def _settled(state: State, op: Op, mine: tuple[str, str]) -> State:
    after = replace(state, token="", settled=mine, leased_at=op.began, is_stopped=False)
    if op.move == "complete":
        return replace(after, place=COMPLETED)
    if state.is_stopped:
        return replace(after, place=CANCELLED)
    if op.move == "fail":
        return replace(after, place=FAILED)
    if op.move == "retry":
        return replace(after, place=DELAYED)
    if op.move == "snooze":
        return replace(after, place=DELAYED, attempts=max(0, state.attempts - 1))
    is_free = state.released < FREE_RELEASES
    attempts = max(0, state.attempts - 1) if is_free else state.attempts
    return replace(after, place=PENDING, attempts=attempts, released=state.released + 1)


def _renew(state: State, op: Op, law: Law) -> Iterator[State]:
    holds = state.place == PROCESSING and state.token == op.token
    if op.answer == "LOST" and not holds:
        yield state
    if op.answer in ("OK", "STOP") and holds and state.is_stopped == (op.answer == "STOP"):
        yield replace(state, leased_at=op.began)


def _taken(state: State, op: Op, law: Law) -> Iterator[State]:
    """A reclaimer named the job among those it had taken back."""
    if state.place == PROCESSING and law.can_end(state.leased_at, op.ended):
        yield _taken_back(state, law)


def _cancel(state: State, op: Op, law: Law) -> Iterator[State]:
    if op.answer in ("cancelled", UNKNOWN) and state.place in (PENDING, DELAYED):
        yield replace(state, place=CANCELLED)
    if op.answer in ("asked", UNKNOWN) and state.place == PROCESSING:
        yield replace(state, is_stopped=True)
    if op.answer == "no" and (state.place in FINISHED or state.place == NOWHERE):
        yield state


def _reschedule(state: State, op: Op, law: Law) -> Iterator[State]:
    if op.answer in ("True", UNKNOWN) and state.place == DELAYED:
        yield replace(state, place=DELAYED if op.delay_ms else PENDING)
    if op.answer == "False" and state.place != NOWHERE:
        yield state  # a delayed one may be due, and have come to `pending` since


def _requeue(state: State, op: Op, law: Law) -> Iterator[State]:
    if op.answer in ("True", UNKNOWN) and state.place in (FAILED, CANCELLED):
        yield State(PENDING, most=state.most, leased_at=op.began)
    if op.answer == "False" and state.place not in (FAILED, CANCELLED):
        yield state


def _seen(state: State, op: Op, law: Law) -> Iterator[State]:
    """What Redis held of it in the end; `gone` is what finished jobs may be."""
    if op.answer == state.place or (op.answer == "gone" and (state.place in FINISHED or state.place == NOWHERE)):
        yield state


_VERBS: Final[dict[str, Callable[[State, Op, Law], Iterator[State]]]] = {
    "enqueue": _enqueue,
    "claim": _claim,
    "settle": _settle,
    "renew": _renew,
    "taken": _taken,
    "cancel": _cancel,
    "reschedule": _reschedule,
    "requeue": _requeue,
    "seen": _seen,
}
