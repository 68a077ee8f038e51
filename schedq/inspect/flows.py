"""A flow for people: how each node of its graph stands."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from schedq.model.graph import CALL, FIRST, MAP, FlowGraph, error_of
from schedq.model.payload import clean_text
from schedq.model.records import JobRecord
from schedq.model.runs import RETURNED, STEP, Memo, Run, RunWait, group_of

_BRIEF: Final = 200


class NodeView(NamedTuple):
    """One node of a flow.

    Attributes:
        number: its number in the graph, from 0.
        name: its name.
        kind: call, map or first.
        status: waiting, running, completed, failed, skipped or cancelled.
        when: success, failure or ended: how the nodes before it must have ended.
        after: the numbers of the nodes that it waits for.
        task: of its jobs, or ''.
        began_ms: when it began; 0 if it has not, or if that is not recorded yet.
        ended_ms: when it was over; 0 if it is not.
        note: what went wrong, or which node won a race.
        group: the batch of its jobs while they run, and of a map also afterwards; or ''.
        queue: the queue of its jobs, if that is not the one of the flow; else ''.
    """

    number: int
    name: str
    kind: str
    status: str
    when: str
    after: tuple[int, ...]
    task: str
    began_ms: int = 0
    ended_ms: int = 0
    note: str = ""
    group: str = ""
    queue: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The node for JSON."""
        return {**self._asdict(), "after": list(self.after)}


def nodes(record: JobRecord) -> list[NodeView]:
    """How the nodes of a flow stand; [] if the job is none of a flow, or has not begun."""
    fields = record.fields
    graph = FlowGraph.of_run(fields, record.payload)
    if graph is None:
        return []
    found = {name.removeprefix(STEP): Memo.read(text) for name, text in fields.items() if name.startswith(STEP)}
    memos = {name: memo for name, memo in found.items() if memo is not None and memo.outcome != RETURNED}
    running = {wait.name for wait in RunWait.read(fields.get("waits"))}
    run, made = Run.read(fields.get("run", "")), list[NodeView]()
    for number, (node, state) in enumerate(zip(graph.nodes, graph.states(memos), strict=True)):
        name, memo = graph.name_of(number, state), state.memo
        is_open = not state.is_over
        status = ("running" if name in running else "waiting") if is_open else state.status
        group = group_of(record.id, run, name) if name in running or (node.kind == MAP and memo is not None) else ""
        note = error_of(memo) if state.status == "failed" else ""
        if node.kind == FIRST and memo is not None:
            note = f"won by {graph.nodes[memo.value].name}"
        times = (memo.began_ms, memo.ended_ms) if memo is not None and node.kind in (CALL, MAP) else (0, 0)
        if memo is not None and node.kind == FIRST:
            times = (memo.ended_ms, memo.ended_ms)
        text = clean_text(note, _BRIEF)
        made.append(
            NodeView(
                *(
                    number,
                    node.name,
                    node.kind,
                    status,
                    node.when,
                    node.after,
                    node.task,
                    *times,
                    text,
                    group,
                    node.queue,
                )
            )
        )
    return made
