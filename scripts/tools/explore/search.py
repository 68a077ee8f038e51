"""Depth-first search through all schedules of a few actors, with crashes and lost replies."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Final
from unittest.mock import patch

from schedq.errors import SchedqError, StoreUnavailable
from schedq.model.lifecycle import PROCESSING
from schedq.model.settings import Settings
from schedq.schedules import register
from schedq.transitions import Operation, cancel, groups, promote, requeue, reschedule
from scripts.tools.explore import group_laws, other_queue_laws, promoter_laws
from scripts.tools.explore.actors import Pause, Plan
from scripts.tools.explore.ledger import Entry, Ledger, enter, missing
from scripts.tools.explore.recovery import Recovery, laws, place_of, read_reply
from scripts.tools.explore.world import Seen, World, states
from tests.gates import Gates
from tests.state import State

_MOST_ROUNDS_KEPT: Final = 10_000


@dataclass(frozen=True)
class Actor:
    """A participant.

    Attributes:
        name: its name in reports.
        plan: what it does.
        queue: the number of its queue.
        may_die: it may disappear after any of its steps.
        may_lose: replies to it may be lost.
    """

    name: str
    plan: Plan
    queue: int = 0
    may_die: bool = True
    may_lose: bool = True


@dataclass(frozen=True)
class Scenario:
    """Which actors take part, and in what situation.

    Attributes:
        name: for reports.
        before: plans that are executed first, in order, on the first queue.
        actors: the actors that then act in any order.
        faults: maximum number of crashes and lost replies in one schedule.
        allowed: laws that may be broken temporarily.
        allowed_after: laws that may be broken even at the end.
        foreign: ids that other programs handle as well.
        settings: of the queues, where they differ from the defaults.
        must_be_whole: scripts/explore searches it completely, whatever the limit for other scenarios.
        wakes: idle workers rely on the wake marker: at the end, jobs may not wait without one.
        runs_all: workers lose no claimed job: at the end, none may be left that no worker has run.
        rescue: what those who stay alive at the end do again and again, if that is more than one queue's promoter and
            worker do.
    """

    name: str
    before: Sequence[Plan]
    actors: Sequence[Actor]
    faults: int = 1
    allowed: Sequence[str] = ()
    allowed_after: Sequence[str] = ()
    foreign: Sequence[str] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    must_be_whole: bool = False
    wakes: bool = False
    runs_all: bool = False
    rescue: Plan | None = None


@dataclass(frozen=True)
class Progress:
    """An actor's progress: the replies that it has had, by round, and those of the current round."""

    rounds: tuple[Any, ...] = ()
    replies: tuple[Any, ...] = ()
    is_over: bool = False


@dataclass(frozen=True)
class Node:
    """One point of a schedule."""

    depth: int
    progress: tuple[Progress, ...]
    now_s: float
    faults: int
    ledger: Ledger
    seen: Seen
    path: tuple[str, ...]


@dataclass
class Report:
    """The results of a search.

    Attributes:
        schedules: number of complete schedules executed.
        is_whole: every schedule of the scenario was executed.
        violations: each violation, with the path that led to it.
        moves: how often each kind of step was executed.
    """

    scenario: str
    schedules: int = 0
    is_whole: bool = True
    violations: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    moves: Counter[str] = field(default_factory=Counter)


class _EnoughError(Exception):
    """The maximum number of violations has been reached."""


class Search:
    """All schedules of one scenario, or as many as the limit allows, in an order determined by the seed."""

    def __init__(
        self, world: World, scenario: Scenario, *, seed: int = 0, most: int = 10**9, most_violations: int = 1
    ) -> None:
        self.report = Report(scenario.name)
        self._world = world
        self._scenario = scenario
        self._queues = [replace(queue, **scenario.settings) for queue in world.queues]
        self._draw = random.Random(f"{scenario.name} {seed}")
        self._most = most
        self._most_violations = most_violations
        self._requests: Iterator[str] = iter(())
        self._judged: dict[Seen, list[str]] = {}
        self._known_states: dict[Seen, list[State]] = {}
        self._recovered: dict[tuple[Seen, float], list[str]] = {}
        self._rounds: dict[tuple[int, int, float], tuple[Sequence[Any] | None, Any, Any]] = {}
        self._recovery = Recovery(world, self._queues, scenario, self._states)

    def run(self) -> Report:
        """Search."""
        with (
            patch.object(cancel, "new_request", self._new_request),
            patch.object(requeue, "new_request", self._new_request),
            patch.object(groups, "new_request", self._new_request),
            patch.object(reschedule, "new_request", self._new_request),
            patch.object(register, "new_request", self._new_request),
            patch.object(promote, "PROMOTER_LEASE_MS", 86_400_000),  # it depends on Redis's clock, so an actor ends it
        ):
            try:
                self._visit(self._begin(), self._most)
            except _EnoughError:
                self.report.is_whole = False
        return self.report

    def _new_request(self) -> str:
        return next(self._requests)

    def _begin(self) -> Node:
        self._world.clear()
        all_progress = tuple(Progress() for _ in self._scenario.actors)
        node = Node(0, all_progress, self._world.now_s, self._scenario.faults, {}, self._world.keep(0), ())
        for number, plan in enumerate(self._scenario.before):
            actor, progress = Actor(f"before{number}", plan), Progress()
            while not progress.is_over:
                operation, reply = self._next(actor, progress), None
                if isinstance(operation, Pause):
                    self._world.now_s += operation.seconds
                    node = replace(node, now_s=self._world.now_s)
                else:
                    node, reply = self._do(node, operation, back_to=-1, keep_as=-1)
                progress = self._replied(actor, progress, reply)
        ledger = {
            key: replace(known, is_foreign=key.partition("/")[2] in self._scenario.foreign)
            for key, known in node.ledger.items()
        }
        return replace(node, seen=self._world.keep(0), ledger=ledger, depth=0)

    def _visit(self, node: Node, most: int) -> int:
        """Execute the schedules that continue from here, at most `most` of them; returns their number.

        If there are more, each branch gets its share, so that the sample is spread over the whole tree.
        """
        branches = list(self._branches(node))
        if not branches:
            self._end(node)
            return 1
        self._draw.shuffle(branches)
        done = 0
        for number, branch in enumerate(branches):
            if done >= most:
                self.report.is_whole = False
                break
            done += branch(math.ceil((most - done) / (len(branches) - number)))
        return done

    def _branches(self, node: Node) -> Iterator[Callable[[int], int]]:
        for number, (actor, progress) in enumerate(zip(self._scenario.actors, node.progress, strict=True)):
            if progress.is_over:
                continue
            self._world.now_s = node.now_s
            operation = self._next(actor, progress)
            yield partial(self._go, node, number, "")
            if node.faults == 0 or isinstance(operation, Pause):
                continue
            if actor.may_die:
                yield partial(self._go, node, number, "dies")
            if actor.may_lose:
                yield partial(self._go, node, number, "loses the reply")
                if not operation.is_repeatable:
                    yield partial(self._go, node, number, "is not heard")

    def _go(self, node: Node, number: int, fault: str, most: int) -> int:
        """One step of one actor, and everything after it."""
        actor, progress = self._scenario.actors[number], node.progress[number]
        self._world.now_s = node.now_s
        operation = self._next(actor, progress)
        said = f"{actor.name}: {_named(operation)}" + (f" ({fault})" if fault else "")
        after = replace(node, path=(*node.path, said), faults=node.faults - bool(fault))
        reply: Any = None
        if isinstance(operation, Pause):
            self._world.now_s += operation.seconds
            after = replace(after, now_s=self._world.now_s, depth=node.depth)
            self.report.moves["time"] += 1
        elif fault == "is not heard":
            reply = StoreUnavailable("not heard")
        else:
            after, reply = self._do(after, operation, back_to=node.depth, keep_as=node.depth + 1)
        if fault == "loses the reply":
            # Sent again if that is safe; otherwise the actor learns that the outcome is unknown.
            progress = progress if operation.is_repeatable else self._replied(actor, progress, _lost())
        elif fault == "dies":
            progress = replace(progress, is_over=True)
        else:
            progress = self._replied(actor, progress, reply)
        all_progress = tuple(progress if place == number else other for place, other in enumerate(node.progress))
        return self._visit(replace(after, progress=all_progress), most)

    def _do(self, node: Node, operation: Operation[Any], *, back_to: int, keep_as: int) -> tuple[Node, Any]:
        """Execute a request and check its effect against the laws; returns the next node and the reply."""
        reply, seen = self._world.step(operation, back_to=back_to, keep_as=keep_as)
        self.report.moves[operation.name] += 1
        reply = read_reply(operation, reply)
        before, after = self._states(node.seen), self._states(seen)
        queue = place_of(operation, self._queues)
        entry = Entry(self._queues[queue], operation, reply, int(self._world.now_s * 1000), before[queue], after[queue])
        ledger, complaints = enter(node.ledger, entry)
        found = replace(node, depth=keep_as, ledger=ledger, seen=seen)
        complaints += self._judge(seen, after)
        for place, state in enumerate(after):
            complaints += missing(ledger, state, self._queues[place])
        self._complain(found, complaints)
        return found, reply

    def _judge(self, seen: Seen, found: Sequence[State]) -> list[str]:
        if seen not in self._judged:
            self._judged[seen] = [law for state in found for law in laws(state, self._scenario.allowed)]
            self._judged[seen] += [law for state in found for law in promoter_laws.at_rest(state)]
            if "groups" not in self._scenario.allowed:
                self._judged[seen] += [
                    law for state in found if "groups" in state.keys for law in group_laws.of_step(state)
                ]
            if self._scenario.rescue is not None:
                self._judged[seen] += other_queue_laws.of_step(found, self._scenario.allowed)
        return self._judged[seen]

    def _end(self, node: Node) -> None:
        """The schedule is over: check that everything accepted finishes."""
        self.report.schedules += 1
        if self._scenario.wakes:
            self._complain(node, _asleep(node, self._queues, self._states(node.seen)))
        if self._scenario.runs_all:
            left = [job_id for state in self._states(node.seen) for job_id in state.ids(PROCESSING)]
            self._complain(node, [f"{job_id} was claimed, and no worker runs it" for job_id in left])
        key = (node.seen, node.now_s)
        if key not in self._recovered:
            self._world.go_back(node.depth)
            self._world.now_s = node.now_s
            self._requests = (f"rescuer-{number}" for number in count())
            self._recovered[key] = self._recovery.complaints(node.ledger, node.seen)
        self._complain(node, self._recovered[key])

    def _complain(self, node: Node, complaints: Sequence[str]) -> None:
        for complaint in dict.fromkeys(complaints):
            self.report.violations.append((complaint, node.path))
        if len(self.report.violations) >= self._most_violations:
            raise _EnoughError

    def _states(self, seen: Seen) -> list[State]:
        if seen not in self._known_states:
            self._known_states[seen] = states(seen, self._queues)
        return self._known_states[seen]

    def _next(self, actor: Actor, progress: Progress) -> Any:
        """The next operation of an actor that is not finished. It is restarted, so it sees the current time."""
        round_ = self._round(actor, progress)
        assert round_ is not None
        return round_[len(progress.replies)]

    def _replied(self, actor: Actor, progress: Progress, reply: Any) -> Progress:
        round_ = self._round(actor, progress)
        assert round_ is not None
        replies = (*progress.replies, reply)
        if len(replies) < len(round_):
            return replace(progress, replies=replies)
        after = Progress((*progress.rounds, list(replies)))
        return replace(after, is_over=self._round(actor, after) is None)

    def _round(self, actor: Actor, progress: Progress) -> Sequence[Any] | None:
        key = (id(actor), id(progress.rounds), self._world.now_s)
        if key not in self._rounds:
            if len(self._rounds) >= _MOST_ROUNDS_KEPT:
                self._rounds.clear()
            self._rounds[key] = (self._restarted(actor, progress.rounds), actor, progress.rounds)
        return self._rounds[key][0]

    def _restarted(self, actor: Actor, rounds: Sequence[Any]) -> Sequence[Any] | None:
        self._requests = (f"{actor.name}-{number}" for number in count())  # restarted, it uses the same names
        trips = actor.plan(self._queues[actor.queue])
        try:
            round_: Sequence[Any] = next(trips)
            for replies in rounds:
                round_ = trips.send(replies)
        except (StopIteration, SchedqError):
            return None
        return round_


def _asleep(node: Node, queues: Sequence[Settings], found: Sequence[State]) -> list[str]:
    """Complaints about jobs for which no worker will be woken."""
    if any("(dies)" in step for step in node.path):
        return []  # the promoter's tick sets the marker again
    return [
        f"jobs of {queue.name} are waiting, all workers are idle, and there is no wake marker"
        for queue, state in zip(queues, found, strict=True)
        if "paused" not in state.keys and not _is_marked(state)
    ]


def _named(operation: Any) -> str:
    if isinstance(operation, Pause):
        return f"{operation.seconds:g} s pass"
    return operation.name if operation.script is not None else " ".join(map(str, operation.args))


def _lost() -> StoreUnavailable:
    return StoreUnavailable("the reply was lost")


def _is_marked(state: State) -> bool:
    """Whether a worker will be woken for the jobs that wait, if there are any."""
    is_marked = "wake" in state.keys or not (state.holds("pending", "list") or state.holds("open_gates", "zset"))
    lanes_are = "wake_held" in state.keys and any(name.startswith("wake:") for name in state.keys)
    in_gates = sum(map(len, Gates(state).waiting.values()))
    return is_marked and (lanes_are or len(state.holds("held", "zset")) == in_gates)
