"""Declared graphs: what a flow's nodes are, what they wait for, and which of them may begin.

A graph is data. The library's own workflow runs it, see `workflows/flow.py`. What a node came to is a memo of the
run; the state of each node follows from the memos.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from schedq.errors import UsageError
from schedq.model.placeholder import ResultPlaceholder
from schedq.model.runs import STEP, Memo

FLOW_TASK: Final = "schedq.flow"
"""The task that runs the graph in its arguments: the flow's name, and the graph."""
CONTROL: Final = "schedq.flow"
"""The topic of the messages that pause and resume a flow."""
CONTROL_NAME: Final = "1.pause/receive"
PLAN: Final = "plan"
"""The kind of the operation that makes the graph of a run, and its name."""
CALL: Final = "call"
MAP: Final = "map"
FIRST: Final = "first"
SUCCESS: Final = "success"
FAILURE: Final = "failure"
ENDED: Final = "ended"
CONDITIONS: Final = (SUCCESS, FAILURE, ENDED)
MOST_NODES: Final = 1000
_WAITING: Final = "waiting"
_READY: Final = "ready"
_OVER: Final = frozenset({"completed", "failed", "skipped", "cancelled"})
_PLACEHOLDER: Final = re.compile('"\ue000(result|error) (\\d+)\ue000"')
_MEMO: Final = re.compile(r"1\.(\d+)/[^#]*(?:#(\d+))?")


class NodePlaceholder(ResultPlaceholder):
    """Stands for the result or the error of a node, as an argument of another node's call."""

    __slots__ = ("node", "owner", "what")
    node: int
    owner: object
    what: str

    def __new__(cls, owner: object, node: int, what: str) -> NodePlaceholder:
        """Make the one for node `node` of the flow `owner`; `what` is result or error."""
        made = super().__new__(cls, f"\ue000{what} {node}\ue000")
        made.owner, made.node, made.what = owner, node, what
        return made

    def __format__(self, _: str) -> str:
        raise UsageError(f"{self!r} is not known yet, so it can't be part of a text: give it to a node as it is")

    def __repr__(self) -> str:
        return f"the {self.what} of node {self.node}"


def filled_in(text: str, replace: Mapping[tuple[str, int], str]) -> str:
    """JSON text with other JSON texts in the place of the placeholders in it."""
    return _PLACEHOLDER.sub(lambda found: replace[found[1], int(found[2])], text)


def inputs_of(text: str) -> set[tuple[str, int]]:
    """What the placeholders in JSON text stand for: result or error, and the number of the node."""
    return {(found[1], int(found[2])) for found in _PLACEHOLDER.finditer(text)}


def has_rest(text: str) -> bool:
    """Whether JSON text has a part of a placeholder, or the characters of one inside of a longer text."""
    return "\ue000" in _PLACEHOLDER.sub("", text)


class GraphNode(NamedTuple):
    """One node.

    Attributes:
        name: for people.
        kind: call, map, or first.
        when: success, failure or ended: how the nodes in `after` must have ended.
        after: the numbers of the nodes that it waits for; of a `first`, those that race.
        task: the task of its jobs.
        options: the options of its jobs, fields and values in turn.
        items: what differs from job to job, as in a batch: one text for each; placeholders may be in it.
        source: the node whose result has the items of a map; None if they are in `items`.
        is_keyed: items begin with the job's key and a space.
        concurrency, tolerate, keeps_results: of a map.
        queue: the queue of its jobs, if that is not the one of the flow; else ''.
    """

    name: str
    kind: str
    when: str = SUCCESS
    after: tuple[int, ...] = ()
    task: str = ""
    options: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    source: int | None = None
    is_keyed: bool = False
    concurrency: int | None = None
    tolerate: float = 0
    keeps_results: bool = True
    queue: str = ""


class NodeState(NamedTuple):
    """How a node stands.

    Attributes:
        status: waiting, ready, completed, failed, skipped, cancelled, or lost: it is to be called off, because another
            node won its race.
        rounds: how often it has begun, or would have if it began now: it may run again after a requeue.
        memo: its outcome, if that is recorded.
        number: of the newest memo that led to this state.
        is_bad: it failed, or was skipped because another node failed; not if another node won its race.
    """

    status: str
    rounds: int = 1
    memo: Memo | None = None
    number: int = 0
    is_bad: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or will never begin."""
        return self.status in _OVER


class FlowGraph(NamedTuple):
    """A declared graph.

    Attributes:
        nodes: each after those that it waits for.
        result: the number of the node whose result is that of the flow, or None.
    """

    nodes: tuple[GraphNode, ...]
    result: int | None = None

    def to_data(self) -> dict[str, Any]:
        """The graph in JSON types."""
        return {"nodes": [_to_data(node) for node in self.nodes], "result": self.result}

    @classmethod
    def of_data(cls, data: Any, *, is_sound: bool = False) -> FlowGraph:
        """The graph that `to_data` returned; `is_sound` if this was checked before.

        Raises:
            UsageError: it is damaged.
        """
        if is_sound:
            return cls(tuple(map(_node, data["nodes"])), data["result"])
        try:
            nodes = tuple(_checked(_node(each), number) for number, each in enumerate(data["nodes"]))
            result = data["result"]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"the graph is damaged: {type(error).__name__}: {error}") from None
        if not nodes or len(nodes) > MOST_NODES or not (result is None or result in range(len(nodes))):
            raise UsageError(f"the graph is damaged: {len(nodes)} nodes, and its result is {result!r:.80}")
        return cls(nodes, result)

    @classmethod
    def of_run(cls, fields: Mapping[str, str], payload: Any) -> FlowGraph | None:
        """The graph of a job, from its record or from its payload; None if it has none."""
        memo = Memo.read(fields.get(STEP + PLAN, ""))
        data = memo.value if memo is not None and memo.kind == PLAN else None
        if data is None and isinstance(payload, dict) and payload.get("task") == FLOW_TASK:
            args = payload.get("args")
            data = args[1] if isinstance(args, list) and len(args) > 1 else None
        try:
            return None if data is None else cls.of_data(data)
        except UsageError:
            return None

    def is_map(self, number: int) -> bool:
        """Whether the result of a node is the results of many jobs."""
        node = self.nodes[number]
        return node.kind == MAP or (node.kind == FIRST and self.is_map(node.after[0]))

    def name_of(self, number: int, state: NodeState) -> str:
        """The name of a node's operation in the record."""
        name = f"1.{number}/{self.nodes[number].name}"
        return f"{name}#{state.rounds}" if state.rounds > 1 else name

    def states(self, memos: Mapping[str, Memo]) -> list[NodeState]:
        """How each node stands, given the memos of the run.

        A race stays decided as long as the outcome of its winner does. That may depend on the losers of other races,
        so the states are looked at again without a decision that does not hold.
        """
        latest = _latest(memos, len(self.nodes))
        decided = {
            number: int(memo.value)
            for number, (_, memo) in latest.items()
            if self.nodes[number].kind == FIRST and memo.outcome == "ok" and memo.value in self.nodes[number].after
        }
        while True:
            lost = self._lost({race: latest[race][1].number for race in decided}, decided)
            states: list[NodeState] = []
            for number, node in enumerate(self.nodes):
                rounds, memo = latest.get(number, _NONE)
                if node.kind == FIRST:
                    found = _race(node, rounds, memo, states, decided.get(number))
                else:
                    found = _state(node, rounds, memo, states)
                states.append(_of_loser(found, rounds, memo, lost[number]) if number in lost else found)
            void = [race for race in decided if states[race].status != "completed"]
            for race in void:
                del decided[race]
            if not void:
                return states

    def _lost(self, numbers: Mapping[int, int], decided: Mapping[int, int]) -> dict[int, int]:
        """The nodes that have lost a race, and what raced in one that has, with the number of the memo that decided."""
        found: dict[int, int] = {}
        for race in range(len(self.nodes) - 1, -1, -1):
            if race in decided:
                found |= {each: numbers[race] for each in self.nodes[race].after if each != decided[race]}
            elif race in found and self.nodes[race].kind == FIRST:
                found |= dict.fromkeys(self.nodes[race].after, found[race])
        return found

    def failures(self, states: Sequence[NodeState]) -> list[tuple[str, str]]:
        """The nodes because of which the flow fails, and what went wrong in each."""
        named = [*zip(self.nodes, states, strict=True)]
        failed = [(node.name, error_of(it.memo)) for node, it in named if it.status == "failed" and it.is_bad]
        return failed or [(node.name, "skipped, because a node before it failed") for node, it in named if _is_lost(it)]


def _is_lost(state: NodeState) -> bool:
    return state.status == "skipped" and state.is_bad


def flow_name(payload: Any) -> str:
    """The name of the flow that a job of the library's task runs; '' for any other job."""
    if not isinstance(payload, dict) or payload.get("task") != FLOW_TASK:
        return ""
    args = payload.get("args")
    return str(args[0]) if isinstance(args, list) and args else ""


def shown_name(name: str) -> str:
    """What people call an operation of a run: of a node of a graph without its number."""
    found = _MEMO.fullmatch(name)
    return name.partition("/")[2] if found else name


def control_name(number: int) -> str:
    """The name of the operation that takes the message `number` to the flow, from 1 on."""
    return CONTROL_NAME if number == 1 else f"{CONTROL_NAME}#{number}"


def control_of(memos: Mapping[str, Memo], requeued: int) -> tuple[bool, int]:
    """Whether a flow is paused that was requeued so often, and how many messages to it were taken.

    A pause is for the time until the next requeue.
    """
    taken, is_paused = 0, False
    while (memo := memos.get(control_name(taken + 1))) is not None:
        taken, is_paused = taken + 1, is_pause(memo.value, requeued)
    return is_paused, taken


def is_pause(value: Any, requeued: int) -> bool:
    """Whether a message pauses a flow that was requeued so often."""
    return bool(value == [True, requeued])


def error_of(memo: Memo | None) -> str:
    """What went wrong in a node; a race without a winner has no memo."""
    if memo is None:
        return "none of its nodes completed"
    return str(memo.value[0] if isinstance(memo.value, list) and memo.value else memo.value)


def _latest(memos: Mapping[str, Memo], count: int) -> dict[int, tuple[int, Memo]]:
    """The newest memo of each node, and in which round it was made, from 1. Damaged records may name other nodes."""
    found: dict[int, tuple[int, Memo]] = {}
    for name, memo in memos.items():
        if parts := _MEMO.fullmatch(name):
            number, rounds = int(parts[1]), int(parts[2] or 1)
            if number < count and rounds > found.get(number, (0, memo))[0]:
                found[number] = rounds, memo
    return found


_NONE: Final[tuple[int, Memo | None]] = (0, None)


def _state(node: GraphNode, rounds: int, memo: Memo | None, before: Sequence[NodeState]) -> NodeState:
    """How a node stands whose work jobs do.

    What it waits for may have run again after a requeue. Then its own outcome is of before, and it runs again, too.
    """
    newest, has_success, is_bad, has_failed, is_open = 0, True, False, False, False
    for each in node.after:
        status, _, _, number, bad = before[each]
        newest = max(newest, number)
        is_open = is_open or status not in _OVER
        has_success = has_success and status == "completed"
        has_failed = has_failed or status == "failed"
        is_bad = is_bad or bad
    if memo is not None and memo.number > newest and not is_open and memo.outcome != "cancelled":
        is_ok = memo.outcome == "ok"
        return NodeState("completed" if is_ok else "failed", rounds, memo, memo.number, not is_ok)
    rounds += 1
    if is_open:
        return NodeState(_WAITING, rounds, None, newest)
    if node.when == ENDED or (has_success if node.when == SUCCESS else is_bad or has_failed):
        return NodeState(_READY, rounds, None, newest)
    return NodeState("skipped", rounds, None, newest, is_bad and node.when == SUCCESS)


def _of_loser(found: NodeState, rounds: int, memo: Memo | None, since: int) -> NodeState:
    """How a node stands that has lost a race, by the memo of this number: it is to be called off, unless it is over."""
    if memo is not None and memo.outcome == "cancelled" and memo.number > since:
        return NodeState("cancelled", rounds, memo, memo.number)
    return found._replace(is_bad=False) if found.is_over else found._replace(status="lost")


def _race(
    node: GraphNode, rounds: int, memo: Memo | None, before: Sequence[NodeState], winner: int | None
) -> NodeState:
    """How a race stands: over when one node has completed, or none can any more."""
    if memo is not None and winner is not None:
        state = before[winner]
        if state.status == "completed" and memo.number > state.number:
            return NodeState("completed", rounds, memo, memo.number)
    nodes = [before[each] for each in node.after]
    newest = max(each.number for each in nodes)
    if any(each.status == "completed" for each in nodes):
        return NodeState(_READY, rounds + 1, None, newest)
    if not all(each.is_over for each in nodes):
        return NodeState(_WAITING, rounds + 1, None, newest)
    is_bad = any(each.is_bad for each in nodes)
    return NodeState("failed" if is_bad else "skipped", rounds + 1, None, newest, is_bad)


# -- as JSON


def _to_data(node: GraphNode) -> dict[str, Any]:
    """The node in JSON types; what is as by default is left out."""
    defaults = GraphNode._field_defaults
    given = {name: value for name, value in node._asdict().items() if value != defaults.get(name)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


def _node(data: Mapping[str, Any]) -> GraphNode:
    given: dict[str, Any] = {name: tuple(it) if it.__class__ is list else it for name, it in data.items()}
    return GraphNode(**given)


def _checked(node: GraphNode, number: int) -> GraphNode:
    sources = () if node.source is None else (node.source,)
    for before in (*node.after, *sources, *(each for text in node.items for _, each in inputs_of(text))):
        if before not in range(number):
            raise ValueError(f"node {number} waits for node {before!r:.80}")
    if not _is_sound(node):
        raise ValueError(f"node {number} is {node!r:.200}")
    return node


def _is_sound(node: GraphNode) -> bool:
    texts = [node.name, node.task, node.queue, *node.options, *node.items]
    has_jobs = node.kind in (CALL, MAP) and bool(node.task)
    return (
        all(isinstance(text, str) for text in texts)
        and node.when in CONDITIONS
        and (has_jobs or (node.kind == FIRST and bool(node.after)))
    )
