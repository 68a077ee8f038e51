"""Runs a declared graph: begins the nodes that may begin, and records what they came to.

It has one branch. Each attempt looks at the nodes that are not over, does what can be done, and waits for all jobs that
run. The jobs of a node are the children of a group, as those of `ctx.call` and `ctx.map`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from schedq.errors import RecordFull, UsageError
from schedq.model.graph import (
    CALL,
    CONTROL,
    FIRST,
    PLAN,
    FlowGraph,
    NodeState,
    control_name,
    control_of,
    is_pause,
)
from schedq.model.groups import ENDED, GroupDefinition
from schedq.model.outcome import Discard
from schedq.model.records import whole
from schedq.model.runs import Memo, RunWait
from schedq.queue.requests import Connections
from schedq.transitions import RoundTrips, groups, unwrap
from schedq.transitions.groups import Filled, GroupEnd
from schedq.workflows.branches import WAITING, Branch
from schedq.workflows.children import goes_on, outcome_of
from schedq.workflows.node_jobs import NodeJobs, Unusable
from schedq.workflows.operation import recorded
from schedq.workflows.place import Place
from schedq.workflows.run import WorkflowRun

_MOST_NAMED: Final = 3
_FEW: Final = 10
"""So many groups are read as a whole, which is one round trip less if one of them has ended."""
_AT_ONCE: Final = 100
"""The most groups that are made or looked at in one round trip."""
_PAGE: Final = 1000


async def run_flow(run: WorkflowRun, connections: Connections, declare: Callable[[], FlowGraph], stored: Any) -> Any:
    """Run the nodes of a graph, and return the result of the flow.

    Args:
        run: the attempt.
        connections: of the queue.
        declare: makes the graph; called once in the life of a run.
        stored: the graph as data, if the job's arguments have it, so that it need not be recorded; else None.

    Raises:
        Discard: a node has failed, and no other one can begin; or the stored graph is damaged.
    """

    async def perform(branch: Branch, name: str) -> Memo:
        try:
            data = declare().to_data() if stored is None else stored
            FlowGraph.of_data(data)
        except UsageError as error:
            raise Discard(str(error)) from None
        memo = Memo(PLAN, "ok", data if stored is None else None, run.now_ms, run.now_ms, 1)
        return await run.requests.ask(branch, run.record.write(name, memo))

    _, memo = await recorded(run, PLAN, PLAN, perform)
    graph = FlowGraph.of_data(memo.value if stored is None else stored, is_sound=True)
    return await _FlowRun(run, connections, graph).to_the_end()


class _FlowRun:
    def __init__(self, run: WorkflowRun, connections: Connections, graph: FlowGraph) -> None:
        self._run, self._graph, self._connections = run, graph, connections
        self._jobs = NodeJobs(run.job.id, connections, graph)
        self._queue, self._branch = connections.settings, run.branches.main
        self._waits: dict[int, RunWait] = {}  # of nodes whose jobs run
        self._known: set[int] | None = None  # nodes that were ready when the attempt began
        self._over: list[str] = []  # groups that are not needed any more
        self._messages, self._is_paused = 0, False

    async def to_the_end(self) -> Any:
        """Do what can be done until all nodes are over, or until jobs must end first.

        Raises:
            Discard: a node has failed.
        """
        self._is_paused = await self._look_for_messages()
        while True:
            states = self._graph.states(self._run.record.memos)
            if all(each.is_over for each in states):
                return self._result(states)
            if await self._settle_races(states):
                continue
            ready = [number for number, each in enumerate(states) if each.status == "ready"]
            if not await self._run_jobs(ready, states):
                await self._ask(self._make(())) if self._over else None
                control = RunWait("receive", control_name(self._messages + 1), None, CONTROL)
                self._branch.waits = (*self._waits.values(), control)
                self._run.branches.become(self._branch, WAITING)  # so the run is suspended
                await asyncio.get_running_loop().create_future()

    async def _ask(self, trips: Any) -> Any:
        return await self._run.requests.ask(self._branch, self._connections.aio.drive(trips))

    # -- the graph

    async def _look_for_messages(self) -> bool:
        """Take the messages that pause and resume the flow; returns whether it is paused."""
        record = self._run.record
        is_paused, self._messages = control_of(record.memos, record.requeued)
        while CONTROL in record.topics:
            request = record.receive(control_name(self._messages + 1), CONTROL, None)
            found = await self._run.requests.ask(self._branch, request)
            if isinstance(found, RunWait):
                break
            self._messages, is_paused = self._messages + 1, is_pause(found.value, record.requeued)
        return is_paused

    async def _settle_races(self, states: Sequence[NodeState]) -> bool:
        """Record which nodes have won, and call off those that lost; returns whether there was something to do."""
        has_moved = False
        for number, own in enumerate(states):
            if own.status not in ("ready", "lost"):
                continue
            node = self._graph.nodes[number]
            if node.kind == FIRST and own.status == "ready":
                ended = [(it.memo.ended_ms, each) for each in node.after if (it := states[each]).memo and not it.is_bad]
                ended = [(at_ms, each) for at_ms, each in ended if states[each].status == "completed"]
                memo = Memo(FIRST, "ok", min(ended)[1], self._run.record.began_ms, min(ended)[0], 1)
                await self._record(number, own, memo)
                has_moved = True
            elif own.status == "lost":
                await self._run.call_off(self._graph.name_of(number, own))
                self._waits.pop(number, None)
                now_ms = self._run.now_ms
                await self._record(number, own, Memo(node.kind, "cancelled", None, now_ms, now_ms, 1))
                has_moved = True
        return has_moved

    def _name(self, number: int, states: Sequence[NodeState]) -> str:
        return self._graph.name_of(number, states[number])

    async def _record(self, number: int, state: NodeState, memo: Memo) -> None:
        name, before = self._graph.name_of(number, state), state._replace(rounds=state.rounds - 1)
        replaced = self._graph.name_of(number, before) if state.rounds > 1 else ""
        await self._run.requests.ask(self._branch, self._run.record.write(name, memo, replaced))

    def _result(self, states: Sequence[NodeState]) -> Any:
        if failures := self._graph.failures(states):
            named = "; ".join(f"node {name}: {error}" for name, error in failures[:_MOST_NAMED])
            more = len(failures) - _MOST_NAMED
            raise Discard(f"{named}; and {more} more" if more > 0 else named)
        wanted = self._graph.result
        if wanted is None:
            return None
        if (status := states[wanted].status) != "completed":
            raise Discard(f"node {self._graph.nodes[wanted].name}, whose result is that of the flow, was {status}")
        return json.loads(self._jobs.result_of(wanted, states))

    # -- the jobs of nodes

    async def _run_jobs(self, ready: Sequence[int], states: Sequence[NodeState]) -> bool:
        """Make the jobs of nodes, and record how they ended; returns whether a node has ended.

        Only nodes that were ready when the attempt began may have jobs: no earlier attempt knew what others came to.
        """
        unknown = [number for number in ready if number not in self._waits]
        self._known = set(ready) if self._known is None else self._known
        found = await self._look([number for number in unknown if number in self._known], states)
        has_ended = False
        for number, end in found.items():
            if end.status in (*ENDED, "filling"):
                has_ended |= await self._end(number, states, end)
            elif end.status:
                self._waits[number] = self._wait(number, states)
        new = [number for number in unknown if number not in found or not found[number].status]
        return await self._begin([] if self._is_paused else new, states) or has_ended

    async def _look(self, numbers: Sequence[int], states: Sequence[NodeState]) -> dict[int, GroupEnd]:
        """How the jobs of nodes stand; where nothing has ended, only the status counts."""
        found: dict[int, GroupEnd] = {}
        for some in _portions(numbers):
            names = [self._wait(number, states).group for number in some]
            if len(numbers) <= _FEW:
                ends = await self._ask(groups.ends_of(self._queue, names))
                found |= zip(some, (_as_looked_at(end) for end in ends), strict=True)
                continue
            statuses = await self._ask(groups.statuses(self._queue, names))
            found |= {number: GroupEnd({"status": status}) for number, status in zip(some, statuses, strict=True)}
        return found

    def _wait(self, number: int, states: Sequence[NodeState]) -> RunWait:
        name = self._name(number, states)
        return RunWait(self._graph.nodes[number].kind, name, None, "", self._place(name).id)

    def _place(self, name: str) -> Place:
        return Place.of(self._run.job.id, self._run.record, name)

    async def _end(self, number: int, states: Sequence[NodeState], found: GroupEnd) -> bool:
        """Record what a node came to whose jobs have ended, or finish what an earlier attempt began to make of them.

        After a requeue what failed runs again. If what a node is given may have changed, all of its jobs do. Returns
        False if that has to wait, because the flow is paused.
        """
        node, state = self._graph.nodes[number], states[number]
        place = self._place(self._name(number, states))
        if len(found.fields) == 1 or found.status == "filling":
            found = await self._ask(groups.end_of(self._queue, place.id))
        fields = found.fields
        if found.status not in ENDED:
            if fields.get("numbered") == "1":
                await self._ask(groups.retry(self._queue, place.id, place.retry))
            else:
                await self._fill(number, states, place, fields)
            return True
        is_outdated = fields.get("links") != str(state.number)
        if is_outdated or not (found.status == "completed" or place.is_of(fields.get("generation", ""))):
            if self._is_paused:
                return False
            if is_outdated:
                return bool(await self._ask(groups.drop(self._queue, place.id)))
            if await goes_on(place, found, self._queue, self._ask):
                return True
        outcome, value = outcome_of(node.kind, place, found)
        began_ms, ended_ms = (whole(fields.get(each)) for each in ("began_at_ms", "ended_at_ms"))
        await self._record(number, state, Memo(node.kind, outcome, value, began_ms, ended_ms or self._run.now_ms, 1))
        if node.kind == CALL:
            self._over.append(place.id)
        return True

    async def _begin(self, numbers: Sequence[int], states: Sequence[NodeState]) -> bool:
        """Make the jobs of nodes; returns whether a node has ended by that."""
        calls, has_ended = list[tuple[GroupDefinition, str]](), False
        for number in numbers:
            wait = self._wait(number, states)
            place = self._place(wait.name)
            await self._check_room(wait.name)
            try:
                if self._graph.nodes[number].kind == CALL:
                    calls.append((self._jobs.definition(number, place, states), self._jobs.line(number, 0, states)))
                else:
                    await self._fill(number, states, place, {})
                self._waits[number] = wait
            except Unusable as error:
                now_ms = self._run.now_ms
                memo = Memo(wait.kind, "error", str(error), now_ms, now_ms, 1)
                await self._record(number, states[number], memo)
                has_ended = True
        for some in _portions(calls):
            await self._ask(self._make(some))
        return has_ended

    async def _check_room(self, name: str) -> None:
        try:
            self._run.record.check(name)
        except RecordFull as error:
            await self._run.stop(error)

    def _make(self, calls: Iterable[tuple[GroupDefinition, str]]) -> RoundTrips[list[Filled]]:
        """Make groups of one job each, and delete those that are over, in one round trip."""
        gone, self._over = groups.drops(self._queue, self._over), []
        fills = [groups.fill(self._queue, made, (line,), 0, close=True, holder=self._run.job) for made, line in calls]
        replies = yield [*fills, *gone]
        return [unwrap(reply) for reply in replies[: len(fills)]]

    async def _fill(self, number: int, states: Sequence[NodeState], place: Place, fields: dict[str, str]) -> None:
        """Make the jobs of a map, or those that are missing."""
        made, at, page = self._jobs.definition(number, place, states), 0, list[str]()
        digest = fields.get("digest", "")

        async def send(*, close: bool) -> None:
            nonlocal at
            for some in groups.pages(page) or [[]]:
                filled = groups.fill(self._queue, made, some, at, close=close, digest=digest, holder=self._run.job)
                await self._run.requests.ask(self._branch, self._connections.aio.ask(filled))
                at += len(some)
            page.clear()

        async for line in self._jobs.lines(number, states):
            page.append(line)
            if len(page) >= _PAGE:
                await send(close=False)
        if len(groups.pages(page)) > 1:
            await send(close=False)
        await send(close=True)


def _as_looked_at(found: GroupEnd) -> GroupEnd:
    is_cut = found.status == "running" and found.fields.get("closed") != "1"
    return GroupEnd({**found.fields, "status": "filling"}) if is_cut else found


def _portions(things: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (things[at : at + _AT_ONCE] for at in range(0, len(things), _AT_ONCE))
