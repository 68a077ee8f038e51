"""The groups of a flow's nodes, each in the queue of its task: how they stand, and how they are made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from schedq.model.graph import CALL, FlowGraph, NodeState
from schedq.model.groups import GroupDefinition
from schedq.model.runs import RunWait
from schedq.model.settings import Settings
from schedq.queue.requests import Connections
from schedq.transitions import Operation, RoundTrips, groups, stand_ins, unwrap
from schedq.transitions.groups import Filled, GroupEnd
from schedq.workflows.children import again_ms, goes_on
from schedq.workflows.node_jobs import NodeJobs
from schedq.workflows.place import Place
from schedq.workflows.run import WorkflowRun

_FEW: Final = 10
"""So many groups are read as a whole, which is one round trip less if one of them has ended."""
_AT_ONCE: Final = 100
"""The most groups that are made or looked at in one round trip."""
_PAGE: Final = 1000


class NodeCall(NamedTuple):
    """A node with one job: its number, its group, and what the job is given."""

    number: int
    made: GroupDefinition
    line: str


class NodeGroups:
    """The groups of the nodes of one flow.

    Args:
        run: the attempt.
        connections: of the flow's queue.
        graph: the graph of the flow.

    Attributes:
        jobs: what the jobs of nodes are made from.
    """

    def __init__(self, run: WorkflowRun, connections: Connections, graph: FlowGraph) -> None:
        self.jobs = NodeJobs(run.job.id, connections, graph)
        self._run, self._graph, self._home = run, graph, connections
        self._over: list[Operation[Any]] = []  # what is sent about groups that are not needed any more

    def wait(self, number: int, states: Sequence[NodeState]) -> RunWait:
        """What the run waits for while the jobs of a node run."""
        node, name = self._graph.nodes[number], self._graph.name_of(number, states[number])
        at_ms = again_ms(self._run, self._home.settings) if node.queue else None
        return RunWait(node.kind, name, at_ms, "", self.place(number, states).id)

    def place(self, number: int, states: Sequence[NodeState]) -> Place:
        """The group of a node."""
        return Place.of(self._run.job.id, self._run.record, self._graph.name_of(number, states[number]))

    def queue_of(self, number: int) -> Settings:
        """The queue of a node's jobs."""
        return self._of(number).settings

    def _of(self, number: int) -> Connections:
        other = self._graph.nodes[number].queue
        return self._home.of_queue(other) if other else self._home

    async def ask(self, number: int | None, trips: Any) -> Any:
        """Send requests to the queue of a node's jobs; None: to that of the flow."""
        connections = self._home if number is None else self._of(number)
        return await self._run.requests.ask(self._run.branches.main, connections.aio.drive(trips))

    # -- how they stand

    async def look(self, numbers: Sequence[int], states: Sequence[NodeState]) -> dict[int, GroupEnd]:
        """How the jobs of nodes stand; where nothing has ended, only the status counts."""
        found: dict[int, GroupEnd] = {}
        for some in self._portions(numbers):
            names = [self.place(number, states).id for number in some]
            if len(numbers) <= _FEW:
                ends = await self.ask(some[0], groups.ends_of(self.queue_of(some[0]), names))
                found |= zip(some, (_as_looked_at(end) for end in ends), strict=True)
                continue
            statuses = await self.ask(some[0], groups.statuses(self.queue_of(some[0]), names))
            found |= {number: GroupEnd({"status": status}) for number, status in zip(some, statuses, strict=True)}
        return found

    async def end_of(self, number: int, place: Place) -> GroupEnd:
        """How a group stands as a whole."""
        found: GroupEnd = await self.ask(number, groups.end_of(self.queue_of(number), place.id))
        return found

    def _portions(self, numbers: Sequence[int]) -> Iterable[Sequence[int]]:
        """Numbers of nodes, by queue, as many as are asked for in one round trip."""
        by_queue: dict[str, list[int]] = {}
        for number in numbers:
            by_queue.setdefault(self._graph.nodes[number].queue, []).append(number)
        for mine in by_queue.values():
            yield from (mine[at : at + _AT_ONCE] for at in range(0, len(mine), _AT_ONCE))

    # -- how they are made

    async def stand_in(self, numbers: Iterable[int], states: Sequence[NodeState], *, is_new: bool = False) -> None:
        """See to it that groups of the flow's queue stand for those of these nodes that are in other queues."""
        home = self._home.settings
        for some in self._portions([number for number in numbers if self._graph.nodes[number].queue]):
            places = [self.place(number, states) for number in some]
            there = [""] if is_new else await self.ask(None, groups.statuses(home, [place.id for place in places]))
            pairs = [(place, "") for place in places] if is_new else zip(places, there, strict=True)
            missing = [(place, status) for place, status in pairs if status != "filling"]
            if gone := [place.id for place, status in missing if status]:  # of an earlier life
                await self.ask(None, _sent(groups.drops(home, gone)))
            if missing:
                other = self.queue_of(some[0])
                await self.ask(None, _sent([self._standing(other, place) for place, _ in missing]))

    def _standing(self, other: Settings, place: Place, *, close: bool = False) -> Operation[Filled]:
        job = self._run.job
        made = stand_ins.definition(other, place.id, job.id, generation=place.fresh())
        return groups.fill(self._home.settings, made, (), 0, close=close, holder=job)

    async def make(self, calls: Sequence[NodeCall], states: Sequence[NodeState]) -> None:
        """Make groups of one job each, and delete those that are over."""
        await self.stand_in([call.number for call in calls], states, is_new=True)
        by_number = {call.number: call for call in calls}
        for some in self._portions(list(by_number)):
            queue, is_home = self.queue_of(some[0]), not self._graph.nodes[some[0]].queue
            fills = [
                groups.fill(queue, made, (line,), 0, close=True, holder=self._run.job if is_home else None)
                for _, made, line in (by_number[number] for number in some)
            ]
            await self.ask(some[0], _sent(fills, self._tidied() if is_home else ()))

    async def fill(self, number: int, states: Sequence[NodeState], place: Place, fields: dict[str, str]) -> None:
        """Make the jobs of a map, or those that are missing."""
        await self.stand_in([number], states)
        made, at, page = self.jobs.definition(number, place, states), 0, list[str]()
        queue, digest = self.queue_of(number), fields.get("digest", "")
        holder = None if self._graph.nodes[number].queue else self._run.job

        async def send(*, close: bool) -> None:
            nonlocal at
            for some in groups.pages(page) or [[]]:
                filled = groups.fill(queue, made, some, at, close=close, digest=digest, holder=holder)
                await self.ask(number, _sent([filled]))
                at += len(some)
            page.clear()

        async for line in self.jobs.lines(number, states):
            page.append(line)
            if len(page) >= _PAGE:
                await send(close=False)
        if len(groups.pages(page)) > 1:
            await send(close=False)
        await send(close=True)

    # -- what becomes of those that have ended

    async def go_on(self, number: int, place: Place, found: GroupEnd) -> bool:
        """As `goes_on`."""
        return await goes_on(place, found, self.queue_of(number), lambda trips: self.ask(number, trips))

    async def is_recorded(self, number: int, place: Place, outcome: str) -> None:
        """The outcome of a node is recorded: note what is not needed any more."""
        node = self._graph.nodes[number]
        if node.queue and node.kind != CALL and outcome == "ok":  # nodes may be given the results
            self._over.append(self._standing(self.queue_of(number), place, close=True))
        elif node.kind == CALL or node.queue:
            if node.queue:
                await self.ask(number, _sent([groups.look_at(self.queue_of(number), [place.id])]))
            self._over += groups.drops(self._home.settings, [place.id])

    async def tidy(self) -> None:
        """Delete what is not needed any more."""
        if self._over:
            await self.ask(None, _sent((), self._tidied()))

    def _tidied(self) -> Sequence[Operation[Any]]:
        gone, self._over = self._over, []
        return gone


def _sent(fills: Sequence[Any], gone: Sequence[Any] = ()) -> RoundTrips[list[Filled]]:
    replies = yield [*fills, *gone]
    return [unwrap(reply) for reply in replies[: len(fills)]]


def _as_looked_at(found: GroupEnd) -> GroupEnd:
    is_cut = found.status == "running" and found.fields.get("closed") != "1"
    return GroupEnd({**found.fields, "status": "filling"}) if is_cut else found
