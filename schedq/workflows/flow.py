"""Runs a declared graph: begins the nodes that may begin, and records what they came to.

It has one branch. Each attempt looks at the nodes that are not over, does what can be done, and waits for all jobs that
run. The jobs of a node are the children of a group, as those of `ctx.call` and `ctx.map`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from schedq.errors import RecordFull, StoreUnavailable, UsageError
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
from schedq.model.groups import ENDED
from schedq.model.outcome import Discard
from schedq.model.records import whole
from schedq.model.runs import Memo, RunWait
from schedq.queue.requests import Connections
from schedq.transitions import groups
from schedq.transitions.groups import GroupEnd
from schedq.workflows.branches import WAITING, Branch
from schedq.workflows.children import outcome_of, pause
from schedq.workflows.node_groups import NodeCall, NodeGroups
from schedq.workflows.node_jobs import Unusable
from schedq.workflows.operation import recorded
from schedq.workflows.run import WorkflowRun

_MOST_NAMED: Final = 3


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
        self._run, self._graph = run, graph
        self._groups, self._branch = NodeGroups(run, connections, graph), run.branches.main
        self._waits: dict[int, RunWait] = {}  # of nodes whose jobs run
        self._known: set[int] | None = None  # nodes that were ready when the attempt began
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
                if any(node.queue for node in self._graph.nodes):  # a failed flow is kept, and what stands for its jobs
                    await self._groups.tidy()
                return self._result(states)
            if await self._settle_races(states):
                continue
            ready = [number for number, each in enumerate(states) if each.status == "ready"]
            if not await self._moved(ready, states):
                await self._groups.tidy()
                control = RunWait("receive", control_name(self._messages + 1), None, CONTROL)
                self._branch.waits = (*self._waits.values(), control)
                self._run.branches.become(self._branch, WAITING)  # so the run is suspended
                await asyncio.get_running_loop().create_future()

    async def _moved(self, ready: Sequence[int], states: Sequence[NodeState]) -> bool:
        """As `_run_jobs`. That another queue can't be reached costs no attempt; all of it is done again."""
        try:
            return await self._run_jobs(ready, states)
        except StoreUnavailable as error:
            if not any(node.queue for node in self._graph.nodes):
                raise
            await pause(self._run, "other queues", error)
            self._waits, self._known = {}, None
            return True

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
        return json.loads(self._groups.jobs.result_of(wanted, states))

    # -- the jobs of nodes

    async def _run_jobs(self, ready: Sequence[int], states: Sequence[NodeState]) -> bool:
        """Make the jobs of nodes, and record how they ended; returns whether a node has ended.

        Only nodes that were ready when the attempt began may have jobs: no earlier attempt knew what others came to. Of
        those in other queues, groups of an earlier life may be there still.
        """
        unknown = [number for number in ready if number not in self._waits]
        self._known = set(ready) if self._known is None else self._known
        nodes = self._graph.nodes
        found = await self._groups.look([each for each in unknown if each in self._known or nodes[each].queue], states)
        running = [number for number, end in found.items() if end.status and end.status not in (*ENDED, "filling")]
        await self._groups.stand_in(running, states)
        self._waits |= {number: self._groups.wait(number, states) for number in running}
        has_ended = False
        for number, end in found.items():
            if end.status in (*ENDED, "filling"):
                has_ended |= await self._end(number, states, end)
        new = [number for number in unknown if number not in found or not found[number].status]
        return await self._begin([] if self._is_paused else new, states) or has_ended

    async def _end(self, number: int, states: Sequence[NodeState], found: GroupEnd) -> bool:
        """Record what a node came to whose jobs have ended, or finish what an earlier attempt began to make of them.

        After a requeue what failed runs again. If what a node is given may have changed, all of its jobs do. Returns
        False if that has to wait, because the flow is paused.
        """
        node, state, nodes = self._graph.nodes[number], states[number], self._groups
        place, queue = nodes.place(number, states), nodes.queue_of(number)
        if len(found.fields) == 1 or found.status == "filling":
            found = await nodes.end_of(number, place)
        fields = found.fields
        if found.status not in ENDED:
            if fields.get("numbered") == "1":
                await nodes.ask(number, groups.retry(queue, place.id, place.retry))
            else:
                await nodes.fill(number, states, place, fields)
            return True
        is_outdated = fields.get("links") != str(state.number)
        if is_outdated or not (found.status == "completed" or place.is_of(fields.get("generation", ""))):
            if self._is_paused:
                return False
            if is_outdated:
                return bool(await nodes.ask(number, groups.drop(queue, place.id)))
            if await nodes.go_on(number, place, found):
                return True
        outcome, value = outcome_of(node.kind, place, found)
        began_ms, ended_ms = (whole(fields.get(each)) for each in ("began_at_ms", "ended_at_ms"))
        await self._record(number, state, Memo(node.kind, outcome, value, began_ms, ended_ms or self._run.now_ms, 1))
        await nodes.is_recorded(number, place, outcome)
        return True

    async def _begin(self, numbers: Sequence[int], states: Sequence[NodeState]) -> bool:
        """Make the jobs of nodes; returns whether a node has ended by that."""
        calls, has_ended = list[NodeCall](), False
        for number in numbers:
            wait, place = self._groups.wait(number, states), self._groups.place(number, states)
            await self._check_room(wait.name)
            try:
                if self._graph.nodes[number].kind == CALL:
                    jobs = self._groups.jobs
                    calls.append(NodeCall(number, jobs.definition(number, place, states), jobs.line(number, 0, states)))
                else:
                    await self._groups.fill(number, states, place, {})
                self._waits[number] = wait
            except Unusable as error:
                now_ms = self._run.now_ms
                memo = Memo(wait.kind, "error", str(error), now_ms, now_ms, 1)
                await self._record(number, states[number], memo)
                has_ended = True
        if calls:
            await self._groups.make(calls, states)
        return has_ended

    async def _check_room(self, name: str) -> None:
        try:
            self._run.record.check(name)
        except RecordFull as error:
            await self._run.stop(error)
