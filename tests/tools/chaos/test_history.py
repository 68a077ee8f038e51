"""Which histories of a job are possible, and which are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scripts.tools.chaos.history import FOREVER, UNKNOWN, Law, Op, is_legal

LEASE_S = 4.0
LAW = Law(3, lambda since, until: until - since >= LEASE_S)
LOSSY = replace(LAW, may_be_claimed=lambda since, until: True)


def enqueue(at: float, reply: str = "OK", *, delay_ms: int | None = None, most: int = 0) -> Op:
    return Op("enqueue", at, at + 0.1, reply, number=most, delay_ms=delay_ms)


def claim(at: float, token: str, number: int) -> Op:
    return Op("claim", at, at + 0.1, "OK", token, number=number)


def settle(at: float, move: str, token: str, reply: str = "OK", *, until: float | None = None, sendings: int = 1) -> Op:
    return Op("settle", at, at + 0.1 if until is None else until, reply, token, move, sendings=sendings)


def renew(at: float, token: str, reply: str = "OK") -> Op:
    return Op("renew", at, at + 0.1, reply, token)


def taken(at: float) -> Op:
    return Op("taken", at, at + 0.1, "OK")


def act(at: float, verb: str, reply: str, *, delay_ms: int | None = None) -> Op:
    return Op(verb, at, at + 0.1, reply, delay_ms=delay_ms)


def seen(place: str) -> Op:
    return Op("seen", 100, 100, place)


def unanswered(op: Op) -> Op:
    return replace(op, ended=FOREVER, reply=UNKNOWN)


DONE = seen("completed")
LEGAL = {
    "it waits, runs and is done": [enqueue(0), claim(1, "a", 1), settle(2, "complete", "a"), DONE],
    "it is forgotten once it is done": [enqueue(0), claim(1, "a", 1), settle(2, "complete", "a"), seen("gone")],
    "it fails, comes back, and is done": [
        enqueue(0), claim(1, "a", 1), settle(2, "retry", "a"), claim(3, "b", 2), settle(4, "complete", "b"), DONE,
    ],
    "a snooze gives the attempt back": [
        enqueue(0), claim(1, "a", 1), settle(2, "snooze", "a"), claim(3, "b", 1), settle(4, "complete", "b"), DONE,
    ],
    "a worker dies, and another one gets the job": [
        enqueue(0), claim(1, "a", 1), taken(6), claim(7, "b", 2), settle(8, "complete", "b"), DONE,
    ],
    "the reply to the reclaim was lost": [
        enqueue(0), claim(1, "a", 1), claim(7, "b", 2), settle(8, "complete", "b"), DONE,
    ],
    "a frozen worker comes back too late": [
        enqueue(0), claim(1, "a", 1), claim(7, "b", 2), settle(8, "complete", "a", "LOST"), settle(9, "complete", "b"),
        DONE,
    ],
    "a completion was sent twice": [
        enqueue(0), claim(1, "a", 1), settle(2, "complete", "a", "DUPLICATE", until=4, sendings=2), DONE,
    ],
    "a retry was executed, but its reply arrived only after another attempt had failed": [
        enqueue(0), claim(1, "a", 1), settle(2, "retry", "a", "LOST", until=9, sendings=2), claim(4, "b", 2),
        settle(5, "retry", "b"), claim(10, "c", 3), settle(11, "complete", "c"), DONE,
    ],
    "the enqueue has no reply, but was executed": [
        unanswered(enqueue(0)), claim(1, "a", 1), settle(2, "complete", "a"), DONE,
    ],
    "the enqueue has no reply, but was executed not": [unanswered(enqueue(0)), seen("gone")],
    "a dead worker's completion came through": [
        enqueue(0), claim(1, "a", 1), unanswered(settle(2, "complete", "a")), DONE,
    ],
    "a dead worker's completion did not": [
        enqueue(0), claim(1, "a", 1), unanswered(settle(2, "complete", "a")), claim(7, "b", 2),
        settle(8, "complete", "b"), DONE,
    ],
    "the claim overlaps the enqueue": [
        Op("enqueue", 0, 5, "OK"), claim(1, "a", 1), settle(2, "complete", "a"), DONE,
    ],
    "it was cancelled while it waited": [enqueue(0, delay_ms=60_000), act(1, "cancel", "cancelled"), seen("cancelled")],
    "it was asked to stop, and stopped": [
        enqueue(0), claim(1, "a", 1), act(2, "cancel", "asked"), renew(3, "a", "STOP"), settle(4, "fail", "a"),
        seen("cancelled"),
    ],
    "it was asked to stop, and was done": [
        enqueue(0), claim(1, "a", 1), act(2, "cancel", "asked"), settle(3, "complete", "a"), DONE,
    ],
    "the last attempt's worker died": [enqueue(0, most=1), claim(1, "a", 1), taken(6), seen("failed")],
    "it failed, and was requeued": [
        enqueue(0, most=1), claim(1, "a", 1), settle(2, "fail", "a"), act(3, "requeue", "True"), claim(4, "b", 1),
        settle(5, "complete", "b"), DONE,
    ],
    "five releases cost nothing": [
        enqueue(0),
        *(op for n in range(5) for op in (claim(1 + 2 * n, f"a{n}", 1), settle(2 + 2 * n, "release", f"a{n}"))),
        claim(20, "b", 1), settle(21, "complete", "b"), DONE,
    ],
    "a suspect ran, was deferred, and ran again": [
        enqueue(0), claim(1, "a", 1), claim(6, "b", 2), taken(11), act(12, "reschedule", "True"),
        act(13, "reschedule", "True"), claim(14, "c", 3), settle(15, "complete", "c"), DONE,
    ],
    "a waiting suspect ran": [
        enqueue(0), claim(1, "a", 1), taken(6), claim(7, "b", 2), taken(12), act(13, "reschedule", "True", delay_ms=0),
        claim(14, "c", 3), settle(15, "complete", "c"), DONE,
    ],
    "a deferred job ran": [
        enqueue(0, delay_ms=60_000), act(1, "reschedule", "True", delay_ms=0), claim(2, "a", 1),
        settle(3, "complete", "a"), DONE,
    ],
}  # fmt: skip
ILLEGAL = {
    "it is not stored": [enqueue(0), seen("gone")],
    "it was started and is not stored": [enqueue(0), claim(1, "a", 1), seen("gone")],
    "it is completed but no worker had it": [enqueue(0), DONE],
    "two workers hold it at a time": [
        enqueue(0), claim(1, "a", 1), claim(2, "b", 2), settle(3, "complete", "b"), DONE,
    ],
    "a lease is taken that was renewed a moment ago": [
        enqueue(0), claim(1, "a", 1), renew(4, "a"), taken(6), claim(7, "b", 2), settle(8, "complete", "b"), DONE,
    ],
    "it begins after it is done": [
        enqueue(0), claim(1, "a", 1), settle(2, "complete", "a"), claim(8, "b", 2), settle(9, "complete", "b"), DONE,
    ],
    "two complete it": [
        enqueue(0), claim(1, "a", 1), claim(7, "b", 2), settle(8, "complete", "a"), settle(9, "complete", "b"), DONE,
    ],
    "a frozen worker's old claim completes what another one holds": [
        enqueue(0), claim(1, "a", 1), claim(7, "b", 2), settle(8, "complete", "a"), DONE,
    ],
    "its holder gets the reply that it is lost": [
        enqueue(0), claim(1, "a", 1), settle(2, "complete", "a", "LOST"), claim(7, "b", 2), settle(8, "complete", "b"),
        DONE,
    ],
    "an attempt is not counted": [
        enqueue(0), claim(1, "a", 1), settle(2, "retry", "a"), claim(3, "b", 1), settle(4, "complete", "b"), DONE,
    ],
    "an attempt is counted twice": [enqueue(0), claim(1, "a", 2), settle(2, "complete", "a"), DONE],
    "a rejected enqueue has stored a job": [
        enqueue(0, "full"), claim(1, "a", 1), settle(2, "complete", "a"), DONE,
    ],
    "what was cancelled runs": [
        enqueue(0, delay_ms=500), act(1, "cancel", "cancelled"), claim(2, "a", 1), settle(3, "complete", "a"), DONE,
    ],
    "a running job is reported as cancelled": [
        enqueue(0), claim(1, "a", 1), act(2, "cancel", "cancelled"), settle(3, "complete", "a"), DONE,
    ],
    "it was asked to stop, and comes back": [
        enqueue(0), claim(1, "a", 1), act(2, "cancel", "asked"), settle(3, "retry", "a"), claim(4, "b", 2),
        settle(5, "complete", "b"), DONE,
    ],
    "a repetition of a request that was never sent": [
        enqueue(0), claim(1, "a", 1), settle(2, "retry", "a"), claim(3, "b", 2), settle(4, "complete", "b"),
        settle(5, "complete", "a", "DUPLICATE"), DONE,
    ],
    "a renewal of what is done": [
        enqueue(0), claim(1, "a", 1), settle(2, "complete", "a"), renew(3, "a"), DONE,
    ],
    "a job that is not a suspect was deferred": [
        enqueue(0), claim(1, "a", 1), taken(6), act(7, "reschedule", "True"), claim(8, "b", 2),
        settle(9, "complete", "b"), DONE,
    ],
    "it runs on after its last attempt has failed": [
        enqueue(0, most=1), claim(1, "a", 1), settle(2, "fail", "a"), claim(3, "b", 2), settle(4, "complete", "b"),
        DONE,
    ],
    "a completed job is requeued": [
        enqueue(0), claim(1, "a", 1), settle(2, "complete", "a"), act(3, "requeue", "True"), seen("pending"),
    ],
    "it was claimed before it was there": [
        enqueue(5), claim(1, "a", 1), settle(2, "complete", "a"), DONE,
    ],
    "a sixth release gives the attempt back": [
        enqueue(0),
        *(op for n in range(6) for op in (claim(1 + 2 * n, f"a{n}", 1), settle(2 + 2 * n, "release", f"a{n}"))),
        claim(20, "b", 1), settle(21, "complete", "b"), DONE,
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", LEGAL)
def test_a_history_that_is_possible_is_accepted(name: str):
    assert is_legal(LEGAL[name], LAW)


@pytest.mark.parametrize("name", ILLEGAL)
def test_a_history_that_is_impossible_is_rejected(name: str):
    assert not is_legal(ILLEGAL[name], LAW)


@pytest.mark.parametrize("name", LEGAL)
def test_lost_claims_may_or_may_not_have_been_executed(name: str):
    assert is_legal(LEGAL[name], LOSSY)


def test_a_lost_claim_costs_an_attempt():
    history = [enqueue(0), claim(6, "b", 2), settle(7, "complete", "b"), DONE]

    assert is_legal(history, LOSSY)
    assert not is_legal(history, LAW)


def test_the_order_of_the_records_does_not_matter():
    for history in LEGAL.values():
        assert is_legal(history[::-1], LAW)
    for history in ILLEGAL.values():
        assert not is_legal(history[::-1], LAW)


def test_hundreds_of_renewals_are_judged_at_once():
    renewals = [renew(1 + n, "a") for n in range(300)]

    assert is_legal([enqueue(0), claim(0.5, "a", 1), *renewals, settle(302, "complete", "a")], LAW)
