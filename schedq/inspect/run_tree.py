"""A workflow's run as a tree: its branches, their operations, and the jobs that they run; and a list of runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from schedq.errors import Conflict
from schedq.inspect import flows
from schedq.inspect.display import apart, count, instant
from schedq.inspect.runs import awaited, error_of, since_ms, to_undo, waits_in_words
from schedq.inspect.search import USUALLY_LOOKED, Filter, find
from schedq.inspect.stats import get_job
from schedq.model.graph import flow_name
from schedq.model.groups import BatchProgress
from schedq.model.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, PENDING, PROCESSING
from schedq.model.payload import clean_text
from schedq.model.records import JobRecord, whole
from schedq.model.runs import RETURNED, STEP, TRIES, UNDO, Memo, Run, RunWait, group_of, undo_name, undone
from schedq.model.settings import Settings
from schedq.model.tasks import is_task_call
from schedq.transitions import RoundTrips, groups, unwrap
from schedq.transitions.heartbeat import workers

STATES: Final = (PROCESSING, DELAYED, PENDING, FAILED, COMPLETED, CANCELLED)
"""The states of runs, in the order of the list: first those that have not ended."""
_DEEPEST: Final = 10
_MOST_JOBS: Final = 100
_MOST_PARTS: Final = 200
_BRIEF: Final = 200


@dataclass(slots=True)
class Node:
    """A job, a branch, or an operation.

    Attributes:
        name: the id of the job, the label of the branch, or the operation, without its path.
        kind: job, branch, or that of the operation: step, sleep, receive, first, gather, call, map or keep.
        state: of a job its state; of an operation its outcome, `waits` or `tried`; '' for a branch; of a node of a flow
            waiting, running, completed, failed, skipped or cancelled.
        took_ms: how long it took; None where that is not known yet.
        note: the task of a job; of an operation what it waits for or what went wrong, and whether it is undone.
        below: what it consists of, in the order of its ends.
        path: of the branch, or of that of the operation.
        began_ms: of an operation when it began, ms on Redis's clock; 0 if that is not known.
        ended_ms: when it was over; 0 if it is not.
        value: what it returned.
        group: whose jobs do its work, or ''.
    """

    name: str
    kind: str
    state: str = ""
    took_ms: int | None = None
    note: str = ""
    below: list[Node] = field(default_factory=list)
    path: str = ""
    began_ms: int = 0
    ended_ms: int = 0
    value: Any = None
    group: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The node and all below it, for JSON."""
        facts = {"name": self.name, "kind": self.kind, "state": self.state, "took_ms": self.took_ms, "note": self.note}
        facts |= {"began_ms": self.began_ms, "ended_ms": self.ended_ms}
        return {**facts, "below": [node.to_dict() for node in self.below]}


def tree(queue: Settings, job_id: str) -> RoundTrips[Node | None]:
    """A job and what its run consists of, with at most 100 jobs below it, ten deep; None if nothing is stored."""
    return (yield from _job(queue, job_id, _DEEPEST, [_MOST_JOBS]))


def _job(queue: Settings, job_id: str, deepest: int, left: list[int]) -> RoundTrips[Node | None]:
    (found,) = yield [get_job(queue, job_id)]
    record: JobRecord | None = unwrap(found)
    return None if record is None else (yield from run_of(queue, record, deepest, left))


def run_of(queue: Settings, record: JobRecord, deepest: int, left: list[int]) -> RoundTrips[Node]:
    """What the run of a job consists of. Below it are jobs down to the depth `deepest`, at most `left[0]` of them."""
    task = record.payload["task"] if is_task_call(record.payload) else ""
    task = f"{task} {name}" if (name := flow_name(record.payload)) else task
    took = max(0, ended_ms(record) - record.enqueued_at_ms) if ended_ms(record) else None
    node = Node(record.id, "job", record.status, took, task)
    branches = {"": node}
    is_flow = Run.read(record.fields.get("run", "")).is_flow
    for operation in (_nodes if is_flow else _operations)(record):
        _branch(branches, operation.path).below.append(operation)
        if operation.group and left[0] > 0 and deepest:
            left[0] -= 1
            try:
                yield from _jobs_of(queue, operation, deepest, left)
            except Conflict as error:  # what is damaged hides nothing else
                operation.note = "; ".join(filter(None, (operation.note, str(error))))
    return node


def ended_ms(record: JobRecord) -> int:
    """When a job was completed, failed or cancelled; 0 if it was not."""
    cancelled = whole(record.fields.get("cancelled_at_ms"))
    return {"completed": record.completed_at_ms, "failed": record.last_error_at_ms, "cancelled": cancelled}.get(
        record.status, 0
    )


def _branch(branches: dict[str, Node], path: str) -> Node:
    """The branch of a path, such as `1.2`: the second branch of the first gather."""
    if path not in branches:
        above, _, label = path.rpartition(".")
        branches[path] = Node(label, "branch", path=path)
        _branch(branches, above.rpartition(".")[0]).below.append(branches[path])
    return branches[path]


def _operations(record: JobRecord) -> Iterator[Node]:
    """The operations that are over, in the order of their ends, then those that are not."""
    fields, run, left = record.fields, Run.read(record.fields.get("run", "")), to_undo(record.fields)
    memos = [(name.removeprefix(STEP), Memo.read(text)) for name, text in fields.items() if name.startswith(STEP)]
    for name, memo in sorted(memos, key=lambda entry: entry[1].number if entry[1] else 0):
        if memo is not None and memo.outcome != RETURNED and not undone(name):
            tries = f"{memo.attempt} tries" if memo.attempt > 1 else ""
            notes = (tries, error_of(memo) or _undo_of(fields, name, left))
            node = _node(name, memo.kind, memo.outcome, notes)
            node.began_ms, node.ended_ms, node.value = memo.began_ms, memo.ended_ms, memo.value
            node.took_ms = max(0, memo.ended_ms - memo.began_ms)
            node.group = group_of(record.id, run, name) if memo.kind in ("call", "map") else ""
            yield node
    waits = RunWait.read(fields.get("waits"))
    for wait in waits:
        until = None if wait.group else instant(wait.until_ms or 0)
        notes = ("" if until is None else f"until {until:%Y-%m-%d %H:%M:%S %z}", _tries(fields, wait.name))
        node = _node(wait.name, "step" if wait.kind == "retry" else wait.kind, "waits", notes)
        node.began_ms, node.group = since_ms(fields, wait.name), wait.group
        yield node
    known = {wait.name for wait in waits}
    for field_name in fields:
        name = field_name.removeprefix(TRIES)
        if field_name.startswith(TRIES) and name not in known:
            yield _node(name, "step", "tried", (_tries(fields, name),))


def _nodes(record: JobRecord) -> Iterator[Node]:
    """The nodes of a flow, in the order in which they were declared."""
    for each in flows.nodes(record):
        took, times = max(0, each.ended_ms - each.began_ms) if each.ended_ms else None, (each.began_ms, each.ended_ms)
        yield Node(each.name, each.kind, each.status, took, each.note, [], "", *times, None, each.group)


def _node(full: str, kind: str, state: str, notes: Iterable[str]) -> Node:
    path, _, name = full.rpartition("/")
    note = clean_text(", ".join(filter(None, notes)), _BRIEF)
    return Node(name, kind, state, note=note, path=path if path.count(".") < _MOST_PARTS else "")


def _tries(fields: Mapping[str, str], name: str) -> str:
    number, _, error = fields.get(TRIES + name, "").partition(" ")
    return f"try {number} failed with {error.split(' ', 2)[-1]}" if number else ""


def _undo_of(fields: Mapping[str, str], name: str, left: list[str]) -> str:
    memo = Memo.read(fields.get(STEP + undo_name(name), ""))
    if memo is not None:
        return "undone" if memo.outcome == "ok" else f"not undone: {memo.value}"
    if UNDO + name not in fields:
        return ""
    return "not undone yet" if name in left else "can be undone"


def _jobs_of(queue: Settings, operation: Node, deepest: int, left: list[int]) -> RoundTrips[None]:
    """Add the job of a `call`, or say how far those of a `map` are."""
    group = operation.group
    fields = yield from groups.read(queue, group)
    if not fields:
        return
    other = fields.get("stands_for", "")
    if other and not queue.tagged:  # on a cluster it may be on another node
        fields = (yield from groups.read(queue.of_queue(other), group)) or fields
    if operation.kind == "map" or other:
        batch = BatchProgress.from_fields(group, fields, int(fields["waiting"]))
        failed = f", {batch.failed:,} failed" if batch.failed else ""
        done = f"{batch.completed:,} of {batch.total:,} completed{failed}; " if batch.total else ""
        done += f"batch {group}" + (f" of queue {other}" if other else "")
        operation.note = f"{operation.note}; {done}" if operation.note else done
        return
    child = yield from _job(queue, f"{group}-0-{fields.get('generation', '')}", deepest - 1, left)
    if child is not None:
        operation.below.append(child)


# -- the list, for which a bounded number of jobs is looked at


class RunPage(NamedTuple):
    """A page of runs.

    Attributes:
        runs: of each state those that were found, in the order of `find`, a dict each: id and state of its job, which
            is delayed while the run waits; task; flow, the name of a started one; operations, how many are done;
            began_at_ms, when it began or last started over, and ended_at_ms, ms on Redis's clock or 0; took_ms, since
            it began or else was enqueued; waits, for what in words; undo, what it undoes or has not undone, in words.
        looked: how many jobs were looked at.
        total: how many jobs there are in these states.
        cursors: where the next page of a state begins, if its end was not reached.
        now_ms: when it was read, ms on Redis's clock.
        tasks: the workflows that live workers have.
    """

    runs: list[dict[str, Any]]
    looked: int
    total: int
    cursors: dict[str, str]
    now_ms: int
    tasks: list[str]


def run_list(
    queue: Settings, states: Sequence[str], task: str, limit: int, cursor: str | None, look: int = USUALLY_LOOKED
) -> RoundTrips[RunPage]:
    """Runs of workflows in these states, of each at most `limit`.

    Args:
        queue: the queue.
        states: which.
        task: only of this workflow; '' for all.
        limit: 1 to 1000.
        cursor: where the page begins, with one state.
        look: the most jobs to look at, in all states together.

    Raises:
        UsageError: an argument is invalid.
    """
    tasks = sorted({name for worker in (yield from workers(queue)) for name in worker.workflows})
    found: dict[str, tuple[str, JobRecord]] = {}
    looked, total, now_ms, cursors = 0, 0, 0, {}
    for state in states:
        page = yield from find(queue, state, Filter(task, runs=tuple(tasks)), limit, cursor, look // len(states))
        found |= {job.id: (state, job) for job in page.jobs}
        looked, total, now_ms = looked + page.looked, total + page.total, page.now_ms
        if page.cursor:
            cursors[state] = page.cursor
    names = dict.fromkeys(name for state, job in found.values() if state == DELAYED for name in awaited(job.fields))
    batches = yield from groups.progress_of_these(queue, [*names])
    runs = [_summary(state, job, now_ms, batches) for state, job in found.values()]
    return RunPage(runs, looked, total, cursors, now_ms, tasks)


def _summary(state: str, job: JobRecord, now_ms: int, batches: Mapping[str, BatchProgress]) -> dict[str, Any]:
    run, end_ms = Run.read(job.fields.get("run", "")), ended_ms(job)
    since_ms, waits, undo = run.began_ms or job.enqueued_at_ms, "", ""
    if state == DELAYED:
        waits = waits_in_words(job.fields, now_ms, batches) or f"it is due {apart(job.run_at_ms, now_ms)}"
    if run.undos and (run.left or run.undoing):
        steps = count(run.undos, "step")
        undo = f"{steps} not undone" if run.left else f"undoes {steps}"
    return {
        "id": job.id,
        "state": state,
        "task": job.payload["task"] if is_task_call(job.payload) else "",
        "flow": clean_text(flow_name(job.payload), _BRIEF),
        "operations": run.steps,
        "began_at_ms": run.began_ms,
        "ended_at_ms": end_ms,
        "took_ms": max(0, (end_ms or now_ms) - since_ms) if since_ms else 0,
        "waits": waits,
        "undo": undo,
    }
