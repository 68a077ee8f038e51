"""The scenarios of those who wait: workers with a claim behind their wait, and promoters at rest until called."""

from __future__ import annotations

from typing import Final

from schedq.errors import StoreUnavailable
from schedq.model.records import ClaimedJob
from schedq.model.settings import Settings
from schedq.transitions import claim, promote, unwrap
from scripts.tools.explore.actors import (
    Plan,
    RequestGenerator,
    cancels,
    ending,
    enqueues,
    holds,
    pauses_and_resumes,
    plain,
    reclaims,
    requeues,
    time_passes,
    waits_then_works,
    works,
)
from scripts.tools.explore.scenarios_of_gates import gate, in_gate
from scripts.tools.explore.scenarios_of_groups import fills
from scripts.tools.explore.search import Actor, Scenario
from scripts.tools.explore.world import LEASE_S
from scripts.tools.settling import settle_all

_JOB: Final = enqueues("j1")
_PRODUCER: Final = Actor("producer", enqueues("j1"))
_OTHER_PRODUCER: Final = Actor("other producer", enqueues("j2"))


def _waits_with_a_claim(name: str) -> Plan:
    """An idle worker that sends a claim for one job behind its wait. If the reply is lost, it asks for the job."""

    def steps(queue: Settings) -> RequestGenerator:
        request = f"{name}0"
        yield [plain("ZPOPMIN", queue.keys.wake)]
        (reply,) = yield [claim.claim(queue, request, 1, name, suspects=False, all_attempts=False)]
        if not isinstance(reply, StoreUnavailable):
            yield from _completes(queue, *unwrap(reply).jobs)
            return
        jobs = yield from claim.recover(queue, request)
        yield from _completes(queue, *jobs)
        yield from works(f"{name}1", "complete")(queue)  # the marker may have been lost, too

    return steps


def _is_cut_off(name: str) -> Plan:
    """The same worker when its connection is lost, and the server does not notice: it executes the claim later.

    The worker asks for the claim's job at once, and again when the wait must have ended.
    """

    def steps(queue: Settings) -> RequestGenerator:
        request = f"{name}0"
        yield from _completes(queue, *(yield from claim.recover(queue, request)))
        yield from works(f"{name}1", "complete")(queue)
        yield [plain("ZPOPMIN", queue.keys.wake)]
        # By the server; no client reads the reply.
        yield [claim.claim(queue, request, 1, name, suspects=False, all_attempts=False)]
        yield from _completes(queue, *(yield from claim.recover(queue, request)))

    return steps


def _takes_the_marker(queue: Settings) -> RequestGenerator:
    yield [plain("ZPOPMIN", queue.keys.wake)]


def _completes(queue: Settings, *jobs: ClaimedJob) -> RequestGenerator:
    for job in jobs:
        yield from settle_all(queue, [ending("complete", job, queue)])


def _rests(name: str, times: int = 2) -> Plan:
    """A promoter looks, rests if nothing needs it, and looks again when it has been called."""

    def steps(queue: Settings) -> RequestGenerator:
        for _ in range(times):
            yield [promote.promote(queue, 1000, name, rest_ms=60_000)]
            (rests,) = yield [plain("HEXISTS", queue.keys.asleep, "channel")]
            if rests == 1:
                return

    return steps


WAIT_SCENARIOS: Final = (
    Scenario(
        "a claim behind a wait ∥ enqueue ∥ a lost connection",
        (),
        (
            _PRODUCER,
            _OTHER_PRODUCER,
            Actor("worker", _waits_with_a_claim("w"), may_die=False),
            Actor("other", waits_then_works("o"), may_die=False),
        ),
        faults=2,
        wakes=True,
        runs_all=True,
    ),
    Scenario(
        "a claim behind a wait ∥ a lost connection that the server keeps",
        (),
        (
            _PRODUCER,
            _OTHER_PRODUCER,
            Actor("worker", _is_cut_off("w"), may_die=False, may_lose=False),
            Actor("other", waits_then_works("o"), may_die=False),
        ),
        wakes=True,
        runs_all=True,
    ),
    Scenario(
        "a claim behind a wait ∥ reclaim",
        (_JOB,),
        (
            Actor("worker", _is_cut_off("w")),
            Actor("clock", time_passes(LEASE_S)),
            Actor("reclaimer", reclaims()),
            Actor("other", _waits_with_a_claim("o")),
        ),
    ),
    Scenario(
        "a promoter rests ∥ enqueue ∥ claim",
        (),
        (
            _PRODUCER,
            _OTHER_PRODUCER,
            Actor("promoter", _rests("p")),
            Actor("worker", waits_then_works("w")),
        ),
    ),
    Scenario(
        "a promoter rests ∥ cancel ∥ enqueue",
        (_JOB,),
        (
            Actor("person", cancels("j1")),
            _OTHER_PRODUCER,
            Actor("promoter", _rests("p")),
            Actor("worker", waits_then_works("w")),
        ),
    ),
    Scenario(
        "a promoter rests ∥ pause ∥ requeue",
        (_JOB, _takes_the_marker, works("x", "discard")),
        (
            Actor("person", pauses_and_resumes()),
            Actor("other person", requeues("j1")),
            _OTHER_PRODUCER,
            Actor("promoter", _rests("p")),
        ),
    ),
    Scenario(
        "a promoter rests ∥ a gate is resumed ∥ cancel",
        (holds("g", None, "pause"), *in_gate("j1", "j2"), _takes_the_marker),
        (
            Actor("person", holds("g", None, "resume")),
            Actor("other person", cancels("j1")),
            Actor("promoter", _rests("p")),
            Actor("worker", waits_then_works("w")),
        ),
        settings=gate(concurrency=1),
    ),
    Scenario(
        "a promoter rests ∥ cancel of a child",
        (fills(2), works("w", "fail", claims=2), _takes_the_marker),
        (
            Actor("person", cancels("b-0-g1")),
            Actor("other person", cancels("b-1-g1")),
            Actor("promoter", _rests("p")),
            Actor("worker", waits_then_works("w")),
        ),
    ),
)
