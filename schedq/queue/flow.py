"""`queue.flow`: declares a graph of jobs, which a workflow of the library runs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import (
    Any,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    ParamSpec,
    TypedDict,
    TypeGuard,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from schedq.errors import UsageError
from schedq.model.expiry import Expiry
from schedq.model.graph import (
    CALL,
    CONDITIONS,
    FAILURE,
    FIRST,
    FLOW_TASK,
    MAP,
    MOST_NODES,
    SUCCESS,
    FlowGraph,
    GraphNode,
    NodePlaceholder,
    has_rest,
    inputs_of,
)
from schedq.model.groups import checked_concurrency, checked_tolerate
from schedq.model.payload import encode
from schedq.model.placeholder import ResultPlaceholder
from schedq.model.records import NewJob, Options
from schedq.model.runs import checked_operation, operation_name
from schedq.model.settings import Settings
from schedq.model.tasks import task_call
from schedq.model.times import Duration, Instant
from schedq.queue.batch_results import BatchResults
from schedq.queue.batches import child_call
from schedq.queue.job import Job
from schedq.queue.requests import Connections
from schedq.queue.stored_calls import check_address, declared_options
from schedq.queue.task import Task
from schedq.queue.task_options import is_keyed, keyed
from schedq.queue.workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Condition = Literal["success", "failure", "ended"]


class FlowNode(Generic[R]):
    """A node of a flow: a job, many jobs, or a race of nodes.

    Attributes:
        name: in the flow.
    """

    def __init__(self, flow: Flow, number: int, name: str, task: Task[..., Any] | None, *, is_map: bool) -> None:
        self.name = name
        self._flow, self._number, self._task, self._is_map = flow, number, task, is_map

    def __repr__(self) -> str:
        return f"FlowNode({self.name!r})"

    @property
    def result(self) -> R:
        """Stands for what the node returns, as an argument of nodes declared later, which then wait for it."""
        return cast(R, NodePlaceholder(self._flow._nodes, self._number, "result"))

    @property
    def error(self) -> str | None:
        """Stands for what went wrong in the node, or None, as an argument of nodes declared later."""
        return NodePlaceholder(self._flow._nodes, self._number, "error")


class _NodeOptions(NamedTuple):
    """Options of the next node."""

    name: str | None = None
    after: tuple[int, ...] = ()
    when: Condition = SUCCESS


class StartOptions(TypedDict, total=False):
    """Options of the job of a flow."""

    job_id: str | None
    delay: Duration | None
    run_at: Instant | None
    expires: Expiry | None
    headers: Mapping[str, str] | None
    completed_ttl: Duration | None
    failed_ttl: Duration | None


class Flow:
    """A graph of jobs, declared node by node. `start` stores it; until then nothing is sent.

    A node begins when all nodes have ended that it takes results of, or comes after.

    Attributes:
        name: for people.
    """

    def __init__(self, connections: Connections, name: str) -> None:
        self.name = checked_operation(name)
        self._connections = connections
        self._options = _NodeOptions()
        self._nodes: list[GraphNode] = []

    def __repr__(self) -> str:
        return f"Flow({self.name!r}, {len(self._nodes)} nodes)"

    def options(
        self,
        *,
        name: str | None = None,
        after: Iterable[FlowNode[Any]] | FlowNode[Any] = (),
        when: Condition | None = None,
    ) -> Flow:
        """Return this flow with options for the next node: `flow.options(after=[a, b]).call(publish)`.

        Args:
            name: the node's name, for people; by default its task's. Equal names are numbered. Without `# ~ : /`.
            after: nodes that must have ended before it begins, in addition to those whose results it takes.
            when: how all these nodes must have ended. `success`, the default: they completed. `failure`: one of them
                failed, or was skipped because of a failure. `ended`: in any way.

        Raises:
            UsageError: an option is invalid.
        """
        if when is not None and when not in CONDITIONS:
            raise UsageError(f"when must be one of {', '.join(CONDITIONS)}, got {when!r:.100}")
        made = copy.copy(self)
        made._options = _NodeOptions(
            None if name is None else checked_operation(name),
            tuple(map(self._number, after if _is_many(after) else [after])),
            when or SUCCESS,
        )
        return made

    @overload
    def call(self, task: Task[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> FlowNode[T]: ...
    @overload
    def call(self, task: Task[P, T], /, *args: P.args, **kwargs: P.kwargs) -> FlowNode[T]: ...
    def call(self, task: Task[..., Any], /, *args: Any, **kwargs: Any) -> FlowNode[Any]:
        """Add a node that runs one job of a task of this or another queue, which may be a workflow or another flow.

        Raises:
            ArgumentsError: the task can't be called with these arguments.
            UsageError: an argument is the result of a node that may have none, or the task has an option that the jobs
                of a flow can't have.
        """
        where = self._checked(CALL, task)
        inputs = _inputs_of(where, self._nodes, [*args, *kwargs.values()])
        new = _declared(task, where, args, kwargs)
        options = Options._make(getattr(new, each) for each in Options._fields)
        fields = declared_options(task._connections.settings, where, options)
        return self._add(CALL, task, inputs, options=fields, items=(_text(task._connections.settings, new),))

    @overload
    def map(
        self,
        task: Task[..., Coroutine[Any, Any, T]],
        items: Iterable[Any],
        *,
        concurrency: int | None = None,
        tolerate: float = 0,
        results: bool = True,
    ) -> FlowNode[BatchResults[T]]: ...
    @overload
    def map(
        self,
        task: Task[..., T],
        items: Iterable[Any],
        *,
        concurrency: int | None = None,
        tolerate: float = 0,
        results: bool = True,
    ) -> FlowNode[BatchResults[T]]: ...
    def map(
        self,
        task: Task[..., Any],
        items: Iterable[Any],
        *,
        concurrency: int | None = None,
        tolerate: float = 0,
        results: bool = True,
    ) -> FlowNode[BatchResults[Any]]:
        """Add a node that runs a job of a task for each item. Its result is the `BatchResults`.

        Args:
            task: a task of this queue or of another one of the same Redis, with the options that its jobs have.
            items: the result of a node that returns a list or is a map, or a list: for each job the one argument of its
                call, or `task.with_args(...)`.
            concurrency: the most jobs that wait or run at the same time, 1 to 1000; None for 1000.
            tolerate: how many jobs may fail, as a number, or as a share below 1.
            results: whether what they return is kept, at most 64 MiB.

        Raises:
            ArgumentsError, UsageError: as `call`.
        """
        where, queue, own = self._checked(MAP, task), task._connections.settings, task._options
        of_jobs: dict[str, Any] = {"concurrency": checked_concurrency(concurrency), "keeps_results": bool(results)}
        of_jobs["tolerate"] = checked_tolerate(tolerate)
        if isinstance(items, NodePlaceholder):
            inputs = _inputs_of(where, self._nodes, [items])
            if items.what != "result":
                raise UsageError(f"{where}: the items of a map are .result of a node, not its .error")
            if isinstance(own.key, tuple):
                raise _unknown_key(where, task)
            options = declared_options(queue, where, own)
            return self._add(MAP, task, inputs, source=items.node, options=options, **of_jobs)
        given = _listed(where, items)
        inputs = _inputs_of(where, self._nodes, given)
        calls = [_item(task, where, item, number) for number, item in enumerate(given)]
        is_keyed, options = own.key is not None, declared_options(queue, where, own._replace(key=None))
        lines = [f"{call.key or ''} {_text(queue, call)}" if is_keyed else _text(queue, call) for call in calls]
        return self._add(MAP, task, inputs, items=tuple(lines), options=options, is_keyed=is_keyed, **of_jobs)

    def first(self, *nodes: FlowNode[T]) -> FlowNode[T]:
        """Add a node that completes with the first of these nodes that completes; the others are called off.

        It fails if none of them completes. The failure of a node that lost is none of the flow.

        Raises:
            UsageError: there are no nodes, or nodes of different kinds, or an option was given other than the name.
        """
        if self._options._replace(name=None) != _NodeOptions():
            raise UsageError("first: a race waits for its nodes alone, so it can't have after= or when=")
        numbers = tuple(dict.fromkeys(self._number(each) for each in nodes))
        if not numbers or len({each._is_map for each in nodes}) > 1:
            raise UsageError(f"first takes nodes, all of them calls or all of them maps, got {nodes!r:.200}")
        kinds = {None if each._task is None else each._task.name for each in nodes}
        task = nodes[0]._task if len(kinds) == 1 else None  # results of several tasks are of several types
        return self._append(GraphNode(self._name("first", ""), FIRST, after=numbers), task, nodes[0]._is_map)

    @overload
    def start(self, result: None = None, /, **options: Unpack[StartOptions]) -> Job[None]: ...
    @overload
    def start(self, result: FlowNode[R], /, **options: Unpack[StartOptions]) -> Job[R]: ...
    def start(self, result: FlowNode[Any] | None = None, /, **options: Unpack[StartOptions]) -> Job[Any]:
        """Store the flow as a job, whose result is that of a node; the job's verbs cancel, pause and requeue the flow.

        With a `job_id` of your own, starting the same flow again returns the job that is there.

        Args:
            result: a node that runs one job, or a race of such nodes; without it the result is None.
            options: job_id, delay, run_at, expires, headers, completed_ttl and failed_ttl, as in `task.options`.

        Raises:
            UsageError: the flow has no nodes, or the result is that of a map, or an option is invalid.
            Conflict, QueueFull, NotAcknowledged, StoreUnavailable: as `Queue.enqueue`.
        """
        graph = self.graph(result)
        return self._job(flow_task(self._connections).options(**options).enqueue(self.name, graph.to_data()), result)

    @overload
    async def astart(self, result: None = None, /, **options: Unpack[StartOptions]) -> Job[None]: ...
    @overload
    async def astart(self, result: FlowNode[R], /, **options: Unpack[StartOptions]) -> Job[R]: ...
    async def astart(self, result: FlowNode[Any] | None = None, /, **options: Unpack[StartOptions]) -> Job[Any]:
        """`start` for asyncio."""
        graph = self.graph(result)
        task = flow_task(self._connections).options(**options)
        return self._job(await task.aenqueue(self.name, graph.to_data()), result)

    def graph(self, result: FlowNode[Any] | None = None) -> FlowGraph:
        """The graph as it is now, with the node whose result is that of the flow.

        Raises:
            UsageError: it has no nodes, or the result is that of a map.
        """
        if not self._nodes:
            raise UsageError(f"flow {self.name!r} has no nodes: add some with call, map and first")
        wanted = None if result is None else self._number(result)
        if result is not None and result._is_map:
            raise UsageError(
                f"flow {self.name!r}: node {result.name!r} runs many jobs, so its result can't be that of the flow: "
                "add a call that takes it, and return that one's"
            )
        return FlowGraph(tuple(self._nodes), wanted)

    # -- building

    def _job(self, made: Job[Any], result: FlowNode[Any] | None) -> Job[Any]:
        made._conversion = None if result is None or result._task is None else result._task._conversion
        return made

    def __call__(self, *_: object) -> NoReturn:
        """Refuse to be a decorator."""
        raise UsageError(
            f"queue.flow({self.name!r}) makes a flow that is filled with call and map; a function that declares one is "
            f"decorated by queue.flow, or by queue.flow(name={self.name!r})"
        )

    def _number(self, node: object) -> int:
        if isinstance(node, NodePlaceholder):
            raise UsageError(f"flow {self.name!r}: give the node itself here, not what stands for its {node.what}")
        if not isinstance(node, FlowNode):
            raise UsageError(f"flow {self.name!r}: {node!r:.100} is no node of a flow")
        if node._flow._nodes is not self._nodes:
            raise UsageError(f"flow {self.name!r}: node {node.name!r} is one of flow {node._flow.name!r}")
        return node._number

    def _checked(self, method: str, task: object) -> str:
        """Check what a node calls; returns what to call it in errors."""
        if not isinstance(task, Task):
            raise UsageError(
                f"flow.{method} takes a task of the queue, got {task!r:.100}; decorate it with @queue.task"
            )
        where = f"flow {self.name!r}, {task.name}"
        check_address(self._connections, where, task)
        return where

    def _name(self, kind: str, task: str) -> str:
        """The name of the next node; equal ones are numbered."""
        wanted = self._options.name or operation_name("" if task else kind, task.rpartition(".")[2])
        taken, number, name = {node.name for node in self._nodes}, 1, wanted
        while name in taken:
            number, name = number + 1, f"{wanted[:90]} {number + 1}"
        return name

    def _add(self, kind: str, task: Task[..., Any], inputs: set[tuple[str, int]], **of_jobs: Any) -> FlowNode[Any]:
        """Add a node whose work jobs do, and which is given these results and errors."""
        name, when = self._name(kind, task.name), self._options.when
        if "source" not in of_jobs:
            _check_texts(f"flow {self.name!r}: node {name!r}", of_jobs.get("items", ()), inputs)
        if when != SUCCESS and any(what == "result" for what, _ in inputs):
            raise UsageError(
                f"flow {self.name!r}: node {name!r} can't take a result, because it runs when={when!r}, and then there "
                "may be none; it may take .error"
            )
        after = tuple(sorted({*self._options.after, *(number for _, number in inputs)}))
        if when == FAILURE and not after:
            raise UsageError(f"flow {self.name!r}: node {name!r} with when='failure' needs nodes that may fail: after=")
        queue = _other_queue(self._connections, task)
        return self._append(GraphNode(name, kind, when, after, task.name, queue=queue, **of_jobs), task, kind == MAP)

    def _append(self, node: GraphNode, task: Task[..., Any] | None, is_map: bool) -> FlowNode[Any]:  # noqa: FBT001
        if len(self._nodes) >= MOST_NODES:
            raise UsageError(f"flow {self.name!r} has {MOST_NODES} nodes, which is the most; use map for many jobs")
        self._nodes.append(node)
        return FlowNode(self, len(self._nodes) - 1, node.name, task, is_map=is_map)


def _other_queue(connections: Connections, task: Task[..., Any]) -> str:
    """The queue of a node's jobs; '' if it is the one of the flow."""
    name = task._connections.settings.name
    return "" if name == connections.settings.name else name


def flow_task(connections: Connections) -> Task[..., Any]:
    """The task that runs the graph in its arguments."""
    return Task(_stored, connections, name=FLOW_TASK, workflow=Workflow(is_flow=True))


def _stored(flow: Flow, name: str, graph: Any) -> None:
    """The arguments of a flow that `Flow.start` has stored. Its graph is run as it is."""


# -- calls with results in them


def _declared(task: Task[..., Any], where: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewJob:
    """The job of a call in which results of nodes may stand, also inside of lists and objects."""
    hidden: dict[str, Any] = {}

    def hide(value: Any) -> Any:
        if isinstance(value, NodePlaceholder) or not _has_input(value):
            return value
        token = ResultPlaceholder(f"\ue000argument {len(hidden)}\ue000")
        hidden[token] = value
        return token

    shown = [hide(each) for each in args], {name: hide(each) for name, each in kwargs.items()}
    payload = task._payload(*shown)
    plain = [hidden.get(each, each) if isinstance(each, str) else each for each in payload.get("args", ())]
    named = payload.get("kwargs", {}).items()
    by_name = {name: hidden.get(each, each) if isinstance(each, str) else each for name, each in named}
    try:
        encode([*hidden.values()], task._connections.settings.max_payload)
    except UsageError as error:
        text = (
            f"{where}: {error}; an argument with a result inside of it is not converted: give JSON, or the result alone"
        )
        raise UsageError(text) from None
    options = task._options
    if is_keyed(options):
        if any(_has_input(each) for each in (*args, *kwargs.values())) and isinstance(options.key, tuple):
            raise _unknown_key(where, task)
        options = keyed(task._handler, options, args, kwargs)
    return NewJob(task_call(task.name, plain, by_name), **options._asdict())


def _text(queue: Settings, call: NewJob) -> str:
    """What is behind the task in the JSON text of a call."""
    payload: Any = call.payload
    head = encode({"task": payload["task"]}, queue.max_payload)
    return encode(payload, queue.max_payload)[len(head) - 1 : -1] or ',"args":[]'


def _item(task: Task[..., Any], where: str, item: Any, number: int) -> NewJob:
    if isinstance(item, NewJob) or not _has_input(item):
        return child_call(task, item, number)
    return _declared(task, where, (item,), {})


def _has_input(value: Any) -> bool:
    return next(_inputs(value), None) is not None


def _inputs(value: Any, *, is_whole: bool = True) -> Iterator[tuple[NodePlaceholder, bool]]:
    """What stands for results in an argument, and whether it is the whole argument."""
    if isinstance(value, NodePlaceholder):
        yield value, is_whole
    if isinstance(value, NewJob):
        call: Any = value.payload
        for each in (*call.get("args", ()), *call.get("kwargs", {}).values()):
            yield from _inputs(each)
        return
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    for each in inside:
        yield from _inputs(each, is_whole=False)


def _inputs_of(where: str, nodes: list[GraphNode], values: Iterable[Any]) -> set[tuple[str, int]]:
    """The results and errors of nodes that stand in arguments."""
    inputs: set[tuple[str, int]] = set()
    for value in values:
        for found, is_whole in _inputs(value):
            if found.owner is not nodes:
                raise UsageError(f"{where}: it takes the {found.what} of a node that is one of another flow")
            if not is_whole and found.what == "result" and _is_map(nodes, nodes[found.node]):
                raise UsageError(f"{where}: the results of a map must be given as a whole argument, not inside of one")
            inputs.add((found.what, found.node))
    return inputs


def _check_texts(where: str, texts: Iterable[str], inputs: set[tuple[str, int]]) -> None:
    """Check that JSON texts have exactly these results and errors, each as a value of its own."""
    if {each for text in texts for each in inputs_of(text)} != inputs or any(map(has_rest, texts)):
        raise UsageError(
            f"{where} has the result of a node inside of a text, as a key, or in an object that is converted: give the "
            "result itself as an argument, or in a list or a dict"
        )


def _is_many(after: object) -> TypeGuard[Iterable[FlowNode[Any]]]:
    return isinstance(after, Iterable) and not isinstance(after, str)


def _listed(where: str, items: Any) -> list[Any]:
    if isinstance(items, FlowNode):
        raise UsageError(f"{where}: the items of a map are node.result, not the node itself")
    if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable):
        raise UsageError(f"{where}: the items of a map must be a list, or the result of a node, got {items!r:.100}")
    return [*items]


def _is_map(nodes: list[GraphNode], node: GraphNode) -> bool:
    return node.kind == MAP or (node.kind == FIRST and _is_map(nodes, nodes[node.after[0]]))


def _unknown_key(where: str, task: Task[..., Any]) -> UsageError:
    return UsageError(
        f"{where}: the key of its jobs depends on a result that is not known before the flow runs: give the key "
        f"itself, as in {task.name}.options(key='…')"
    )


def declared(connections: Connections, name: str, declare: Callable[[Flow], Any]) -> FlowGraph:
    """The graph that a function declares.

    Raises:
        UsageError: it returns something else than one of the nodes, or declares an invalid graph.
    """
    flow = Flow(connections, operation_name("", name.rpartition(".")[2]) or "flow")
    found = declare(flow)
    if found is not None and not isinstance(found, FlowNode):
        raise UsageError(f"the function of flow {name!r} must return one of its nodes, or nothing, got {found!r:.100}")
    return flow.graph(found)
