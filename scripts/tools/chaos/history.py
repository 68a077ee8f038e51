"""Whether the replies about one job are possible: some order explains them, with each request at a single instant.

The object is the job state machine of `schedq.model.lifecycle`; the method is a Wing & Gong search over orders (Wing &
Gong, "Testing and verifying concurrent objects", 1993). Jobs are independent, so each is checked alone. A request
without a reply may have been executed at any time after it was sent, or not at all. No request marks the end of a
lease: it is possible at any time when the lease may have expired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from schedq.model.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, FINISHED, NOWHERE, PENDING, PROCESSING

FREE_RELEASES: Final = 5
SUSPECT: Final = 2
"""Number of lost leases from which a job is suspected of killing its workers."""
UNKNOWN: Final = "unknown"
FOREVER: Final = math.inf
MOST_STATES: Final = 200_000
"""Number of states that a search visits before it gives up; histories of a run need hundreds."""


class TooLongError(Exception):
    """The history is too long to decide whether it is legal."""


@dataclass(frozen=True, slots=True)
class Op:
    """One request about a job, or one observation of it.

    Attributes:
        verb: enqueue, claim, settle, renew, taken, cancel, reschedule, requeue; `seen` is its final state.
        began: instant, in seconds, before it was sent.
        ended: instant after the reply; FOREVER if there was none.
        reply: the verb's reply; UNKNOWN if there was none.
        token: of a claim, renew or settle.
        move: the transition requested by a settle.
        number: the attempt, for a claim; the maximum number of attempts, for an enqueue.
        delay_ms: time until it is due (enqueue, reschedule, settle); None for immediately.
        sendings: number of times it was sent, as far as known.
    """

    verb: str
    began: float
    ended: float
    reply: str
    token: str = ""
    move: str = ""
    number: int = 0
    delay_ms: int | None = None
    sendings: int = 1


@dataclass(frozen=True, slots=True)
class State:
    """The state of the job, as far as the state machine needs it."""

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
    """What the search needs to know about the run.

    Attributes:
        most_attempts: the queue's limit.
        can_end: whether a lease that began no earlier than the first instant can have ended by the second.
        may_be_claimed: whether a claim without a reply may have been executed between two instants.
    """

    most_attempts: int
    can_end: Callable[[float, float], bool] = field(default=lambda since, until: True)
    may_be_claimed: Callable[[float, float], bool] = field(default=lambda since, until: False)


def is_legal(ops: Sequence[Op], law: Law) -> bool:
    """Whether a legal order exists.

    Raises:
        TooLongError: the search was given up.
    """
    ordered = sorted(ops, key=lambda op: (op.began, op.ended))
    must = sum(1 << n for n, op in enumerate(ordered) if op.reply != UNKNOWN)
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
    """Operations that may come next: none that was sent after the reply to another remaining one."""
    limit = min((op.ended for n, op in enumerate(ops) if not done >> n & 1), default=FOREVER)
    for number, op in enumerate(ops):
        if op.began > limit:
            return
        if not done >> number & 1:
            yield number


def after_op(state: State, op: Op, law: Law) -> Iterator[State]:
    """The states that the request and its reply can lead to, also after transitions that no recorded request caused."""
    for before in _drifts(state, op, law):
        yield from _VERBS[op.verb](before, op, law)


def _drifts(state: State, op: Op, law: Law) -> Iterator[State]:
    """The state and what it can become without a recorded request: leases end, unanswered claims take or defer jobs."""
    yield state
    if state.place == PROCESSING and law.can_end(state.leased_at, op.ended):
        back = _taken_back(state, law)
        yield back
        yield from _ghosts(back, op, law)
    elif state.place in (PENDING, DELAYED):
        yield from _ghosts(state, op, law)
        if state.place == PENDING and state.crashes >= SUSPECT:
            yield replace(state, place=DELAYED)  # a claim whose worker may not run it defers it


def _ghosts(state: State, op: Op, law: Law) -> Iterator[State]:
    """Claims of processes that died or were disconnected before the reply arrived."""
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
    place = PENDING if crashes < SUSPECT else DELAYED  # a suspect is delayed
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
    if op.reply == "full":
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
    can_have_effect = op.reply in ("OK", "DUPLICATE", UNKNOWN) or op.sendings > 1
    if holds and can_have_effect:
        yield _settled(state, op, mine)
    if op.reply == "DUPLICATE" and state.settled == mine:
        yield state
    if op.reply == "LOST" and not holds:
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
    if op.reply == "LOST" and not holds:
        yield state
    if op.reply in ("OK", "STOP") and holds and state.is_stopped == (op.reply == "STOP"):
        yield replace(state, leased_at=op.began)


def _taken(state: State, op: Op, law: Law) -> Iterator[State]:
    """A reclaimer reported the job as taken back."""
    if state.place == PROCESSING and law.can_end(state.leased_at, op.ended):
        yield _taken_back(state, law)


def _cancel(state: State, op: Op, law: Law) -> Iterator[State]:
    if op.reply in ("cancelled", UNKNOWN) and state.place in (PENDING, DELAYED):
        yield replace(state, place=CANCELLED)
    if op.reply in ("asked", UNKNOWN) and state.place == PROCESSING:
        yield replace(state, is_stopped=True)
    if op.reply == "no" and (state.place in FINISHED or state.place == NOWHERE):
        yield state


def _reschedule(state: State, op: Op, law: Law) -> Iterator[State]:
    if op.reply in ("True", UNKNOWN) and state.place == DELAYED:
        yield replace(state, place=DELAYED if op.delay_ms else PENDING)
    if op.reply == "False" and state.place != NOWHERE:
        yield state  # a delayed job may have become due and moved to `pending`


def _requeue(state: State, op: Op, law: Law) -> Iterator[State]:
    if op.reply in ("True", UNKNOWN) and state.place in (FAILED, CANCELLED):
        yield State(PENDING, most=state.most, leased_at=op.began)
    if op.reply == "False" and state.place not in (FAILED, CANCELLED):
        yield state


def _seen(state: State, op: Op, law: Law) -> Iterator[State]:
    """The job's final state in Redis; `gone` is legal for finished jobs."""
    if op.reply == state.place or (op.reply == "gone" and (state.place in FINISHED or state.place == NOWHERE)):
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
