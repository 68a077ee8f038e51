"""The jobs of a flow's nodes: their options, and their arguments with what other nodes returned."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from schedq.errors import JobGone
from schedq.model.graph import CALL, FIRST, MAP, FlowGraph, GraphNode, NodeState, error_of, filled_in, inputs_of
from schedq.model.groups import GroupDefinition
from schedq.model.payload import decoded, encode
from schedq.model.placeholder import QUEUE, REFERENCE
from schedq.model.records import Options
from schedq.queue.batch_results import results_of
from schedq.queue.batches import channel_of
from schedq.queue.before_enqueue import prepared_options
from schedq.queue.requests import Connections
from schedq.transitions import enqueue, stand_ins
from schedq.workflows.place import Place


class Unusable(Exception):  # noqa: N818 - why a node can't begin
    """A result can't be given to a node. The node fails with this text."""


class NodeJobs:
    """What the jobs of nodes are made from.

    Args:
        job_id: the job of the flow, which they wake.
        connections: of the queue.
        graph: the graph of the flow.
    """

    def __init__(self, job_id: str, connections: Connections, graph: FlowGraph) -> None:
        self._job_id, self._connections, self._graph = job_id, connections, graph
        self._queue = connections.settings
        self._results: dict[tuple[str, int], str] = {}

    def result_of(self, number: int, states: Sequence[NodeState]) -> str:
        """What a node returned, as JSON; of a map what stands for its results."""
        memo = states[number].memo
        if memo is None or states[number].status != "completed":
            return "null"
        if memo.kind == FIRST:
            return self.result_of(memo.value, states)
        return encode(self._reference(number, memo.value) if memo.kind == MAP else memo.value, self._queue.max_payload)

    def _reference(self, number: int, batch: Any) -> dict[str, Any]:
        """What stands for the results of a map; with its queue if the flow has jobs in several ones."""
        is_spread = any(node.queue for node in self._graph.nodes)
        return {REFERENCE: batch, **({QUEUE: self._graph.nodes[number].queue or self._queue.name} if is_spread else {})}

    def definition(self, number: int, place: Place, states: Sequence[NodeState]) -> GroupDefinition:
        """The group of a node's jobs."""
        node = self._graph.nodes[number]
        options = self._prepared(node)
        return GroupDefinition(
            name=place.id,
            generation=place.fresh(),
            head=encode({"task": node.task}, self._queue.max_payload)[:-1],
            tail="}",
            options=options,
            is_keyed=node.is_keyed,
            concurrency=node.concurrency,
            tolerate=node.tolerate,
            keeps_results=node.keeps_results,
            links=str(states[number].number),  # the newest outcome that they may be given
            gates=tuple(value for name, value in _pairs(node.options) if name == "gate"),
            **self._ties(node, place),
        )

    def _ties(self, node: GraphNode, place: Place) -> dict[str, Any]:
        """How the end of the group becomes known."""
        if not node.queue:
            return {"wake": self._job_id, "channel": channel_of(self._queue, place.id), "close_within_ms": 0}
        channel = channel_of(self._connections.of_queue(node.queue).settings, place.id)
        kept = {"kept_ms": stand_ins.KEPT_MS} if node.kind == CALL else {}
        within = {"close_within_ms": stand_ins.CLOSE_WITHIN_MS}
        return {"tells": self._queue.keys.due, "channel": channel, **kept, **within}

    def _prepared(self, node: GraphNode) -> tuple[str, ...]:
        """The options of a node's jobs, with the headers and the trace that jobs get from whoever enqueues them."""
        given, payload = dict(_pairs(node.options)), {"task": node.task}
        known = Options(headers=decoded(given.get("headers")))
        if self._connections.before_enqueue:
            known = prepared_options(self._connections, payload, known)
        given |= {str(each): str(value) for each, value in _pairs(enqueue.prepare(self._queue, payload, known).fields)}
        return tuple(word for pair in given.items() for word in pair)

    async def lines(self, number: int, states: Sequence[NodeState]) -> AsyncIterator[str]:
        """The items of a map."""
        node = self._graph.nodes[number]
        if node.source is None:
            for at in range(len(node.items)):
                yield self.line(number, at, states)
            return
        items = json.loads(self.result_of(node.source, states))
        if self._graph.is_map(node.source):
            try:
                async for item in results_of(self._connections, items):
                    yield self._argument(item)
            except JobGone as gone:
                raise Unusable(str(gone)) from None
            return
        if not isinstance(items, list):
            name = self._graph.nodes[node.source].name
            raise Unusable(f"node {name} returned {items!r:.100}, and the items of a map must be a list")
        for item in items:
            yield self._argument(item)

    def _argument(self, item: Any) -> str:
        return f',"args":[{encode(item, self._queue.max_payload)}]'

    def line(self, number: int, at: int, states: Sequence[NodeState]) -> str:
        """One item of a node, with what the nodes before returned in its place."""
        text = self._graph.nodes[number].items[at]
        values = {(what, each): self._value(what, each, states) for what, each in inputs_of(text)}
        text = filled_in(text, values) if values else text
        if (size := len(text.encode("utf-8", "surrogatepass"))) > self._queue.max_payload:
            raise Unusable(f"its arguments take {size:,} bytes, and max_payload is {self._queue.max_payload:,}")
        return text

    def _error_of(self, number: int, states: Sequence[NodeState]) -> str | None:
        """What went wrong in a node, or in the one because of which it was skipped."""
        state, node = states[number], self._graph.nodes[number]
        if state.status == "skipped" and state.is_bad:
            return self._error_of(next(each for each in node.after if states[each].is_bad), states)
        return f"{node.name}: {error_of(state.memo)}" if state.status == "failed" else None

    def _value(self, what: str, number: int, states: Sequence[NodeState]) -> str:
        if (what, number) not in self._results:
            error = encode(self._error_of(number, states), self._queue.max_payload)
            self._results[what, number] = self.result_of(number, states) if what == "result" else error
        return self._results[what, number]


def _pairs(words: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(words[::2], words[1::2], strict=True)
