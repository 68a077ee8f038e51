"""The end of a schedule: promoters and workers that stay alive, with which everything accepted must finish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from schedq.connection import redis_errors
from schedq.connection.address import Address
from schedq.errors import SchedqError
from schedq.model.settings import Settings
from schedq.schedules.fire import DefinitionCache, fire_due
from schedq.transitions import Operation, claim, gates, groups, pause, promote, reclaim, settle
from scripts.tools.explore import group_laws, other_queue_laws
from scripts.tools.explore.actors import Pause, ending
from scripts.tools.explore.ledger import Entry, Ledger, enter, missing
from scripts.tools.explore.schedule_laws import unaccounted
from scripts.tools.explore.world import Seen, World
from tests.state import State

if TYPE_CHECKING:
    from scripts.tools.explore.search import Scenario

_ADDRESS: Final = Address("unix:///explorer")
_MOST_RECOVERIES: Final = 60
_MOST_ROUNDS: Final = 200


class _Point(NamedTuple):
    """How far a recovery is."""

    ledger: Ledger
    seen: Seen


class Recovery:
    """What happens after a schedule, and the laws that it breaks.

    Args:
        world: in the state that the schedule left, whenever `complaints` is called.
        queues: the settings of its queues.
        scenario: that of the schedule.
        states: returns the state of each queue from what was read.
    """

    def __init__(
        self, world: World, queues: Sequence[Settings], scenario: Scenario, states: Callable[[Seen], list[State]]
    ) -> None:
        self._world, self._queues, self._scenario, self._states = world, queues, scenario, states

    def complaints(self, ledger: Ledger, seen: Seen) -> list[str]:
        """Let everything finish; returns the laws that were broken meanwhile, or are at the end."""
        at, complaints = _Point(ledger, seen), list[str]()
        if self._scenario.rescue is not None:
            at = self._rescue(at, complaints)
            complaints += other_queue_laws.at_the_end(self._states(at.seen), self._scenario.allowed)
        for place in range(len(self._queues)):
            if not self._states(at.seen)[place].keys:
                continue  # nothing uses this queue, and `missing` has looked for what was accepted
            at = at if self._scenario.rescue is not None else self._finish(at, place, complaints)
            state = self._states(at.seen)[place]
            complaints += laws(state, self._scenario.allowed_after)
            complaints += unaccounted(state)
            complaints += group_laws.at_the_end(state) if "groups" in state.keys else ()
        return complaints

    def _rescue(self, at: _Point, complaints: list[str]) -> _Point:
        """What the scenario says that those do who stay alive, in all queues in turn."""
        assert self._scenario.rescue is not None
        for _ in range(_MOST_RECOVERIES):
            at = self._round_trips(at, self._scenario.rescue(self._queues[0]), complaints)
            found = self._states(at.seen)
            if not any(_is_live(state) for state in found) and not other_queue_laws.is_unfinished(
                found, self._scenario.allowed
            ):
                return at
        for queue, state in zip(self._queues, found, strict=True):
            if _is_live(state):
                complaints.append(f"not every job of {queue.name} finished: {state.places()}")
        return at

    def _finish(self, at: _Point, place: int, complaints: list[str]) -> _Point:
        """A promoter and a worker of one queue."""
        queue = self._queues[place]
        at, _ = self._quietly(at, pause.resume(queue), complaints)
        for task in self._states(at.seen)[place].holds("paused_tasks", "hash"):
            at = self._round_trips(at, pause.resume_task(queue, task), complaints)
        for operation in _resumes_of_gates(queue, self._states(at.seen)[place]):
            at, _ = self._quietly(at, operation, complaints)
        for _ in range(_MOST_RECOVERIES):
            self._world.now_s += 11
            at, _ = self._quietly(at, promote.promote(queue, 1000, "rescuer"), complaints)
            at = self._round_trips(at, reclaim.take_back(queue), complaints)
            if "schedules" in self._states(at.seen)[place].keys:
                at = self._round_trips(at, fire_due(queue, DefinitionCache()), complaints)
            if "groups" in self._states(at.seen)[place].keys:
                at = self._round_trips(at, groups.advance_all(queue), complaints)
            request = f"rescue-{self._world.now_s}"
            at, claimed = self._quietly(at, claim.claim(queue, request, 10, "rescuer"), complaints)
            for job in claimed.jobs:
                at, _ = self._quietly(at, settle.settle(queue, [ending("complete", job, queue)]), complaints)
            state = self._states(at.seen)[place]
            goes_on = any(slot != "inf" for slot in state.holds("schedules", "zset").values())
            goes_on = goes_on or any(score == "0" for score in state.holds("groups", "zset").values())
            if not goes_on and not _is_live(state):
                return at
        complaints.append(f"not every job of {queue.name} finished: {state.places()}")
        return at

    def _round_trips(self, at: _Point, trips: Any, complaints: list[str]) -> _Point:
        replies: Any = None
        try:
            step = next(trips)
            for _ in range(_MOST_ROUNDS):
                replies = []
                for operation in step:
                    reply = None
                    if isinstance(operation, Pause):
                        self._world.now_s += operation.seconds
                    else:
                        at, reply = self._quietly(at, operation, complaints)
                    replies.append(reply)
                step = trips.send(replies)
        except StopIteration:
            return at
        complaints.append(f"in recovery: {step[0].name} does not end")
        return at

    def _quietly(self, at: _Point, operation: Operation[Any], complaints: list[str]) -> tuple[_Point, Any]:
        reply, seen = self._world.step(operation)
        reply = read_reply(operation, reply)
        before, after = self._states(at.seen), self._states(seen)
        place = place_of(operation, self._queues)
        entry = Entry(self._queues[place], operation, reply, int(self._world.now_s * 1000), before[place], after[place])
        ledger, found = enter(at.ledger, entry)
        complaints += [f"in recovery: {complaint}" for complaint in found]
        complaints += [f"in recovery: {line}" for line in missing(ledger, after[place], self._queues[place])]
        return _Point(ledger, seen), reply


def laws(state: State, allowed: Sequence[str]) -> list[str]:
    """Laws that a state breaks, and jobs that can no longer be run."""
    found = state.broken_laws()
    found["broken"] = [f"{job_id} has lost its data" for job_id in state.ids("broken")]
    return [
        f"{law}: {complaint}" for law, complaints in found.items() if law not in allowed for complaint in complaints
    ]


def place_of(operation: Operation[Any], queues: Sequence[Settings]) -> int:
    """The number of the queue that a request is for, which its keys say."""
    words = [str(word) for word in (*operation.keys, *operation.args)]
    return next(n for word in words for n, queue in enumerate(queues) if word.startswith(queue.keys.prefix))


def read_reply(operation: Operation[Any], reply: Any) -> Any:
    """The result of a request; errors are values."""
    if isinstance(reply, Exception):
        return redis_errors.translate(reply, operation.name, _ADDRESS.label)
    try:
        return operation.read(reply)
    except SchedqError as error:
        return error


def _is_live(state: State) -> bool:
    return any(state.ids(place) for place in ("delayed", "pending", "processing"))


def _resumes_of_gates(queue: Settings, state: State) -> Iterator[Operation[bool]]:
    for name, until in state.holds("gate_holds", "zset").items():
        if until == "inf":
            gate, _, key = name.partition(" ")
            yield gates.hold(queue, gate, key if " " in name else None, "resume")
