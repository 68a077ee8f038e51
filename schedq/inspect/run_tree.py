"""A workflow's run as a tree: its branches, their operations, and the jobs that they run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from schedq.inspect import flows
from schedq.inspect.display import instant
from schedq.inspect.runs import error_of, to_undo
from schedq.inspect.stats import get_job
from schedq.model.groups import BatchProgress
from schedq.model.payload import clean_text
from schedq.model.records import JobRecord, whole
from schedq.model.runs import RETURNED, STEP, TRIES, UNDO, Memo, Run, RunWait, group_of, undo_name, undone
from schedq.model.settings import Settings
from schedq.model.tasks import is_task_call
from schedq.transitions import RoundTrips, groups, unwrap

_DEEPEST: Final = 10
_MOST_JOBS: Final = 100
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
    """

    name: str
    kind: str
    state: str = ""
    took_ms: int | None = None
    note: str = ""
    below: list[Node] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The node and all below it, for JSON."""
        facts = {"name": self.name, "kind": self.kind, "state": self.state, "took_ms": self.took_ms, "note": self.note}
        return {**facts, "below": [node.to_dict() for node in self.below]}


def tree(queue: Settings, job_id: str) -> RoundTrips[Node | None]:
    """A job and what its run consists of, with at most 100 jobs below it, ten deep; None if nothing is stored."""
    left = [_MOST_JOBS]
    return (yield from _job(queue, job_id, 0, left))


def _job(queue: Settings, job_id: str, depth: int, left: list[int]) -> RoundTrips[Node | None]:
    (found,) = yield [get_job(queue, job_id)]
    record: JobRecord | None = unwrap(found)
    if record is None:
        return None
    task = record.payload["task"] if is_task_call(record.payload) else ""
    took = max(0, _ended_ms(record) - record.enqueued_at_ms) if _ended_ms(record) else None
    node = Node(record.id, "job", record.status, took, task)
    branches = {"": node}
    is_flow = Run.read(record.fields.get("run", "")).is_flow
    for path, operation, group in (_nodes if is_flow else _operations)(record):
        _branch(branches, path).below.append(operation)
        if group and left[0] > 0 and depth < _DEEPEST:
            left[0] -= 1
            yield from _jobs_of(queue, operation, group, depth, left)
    return node


def _ended_ms(record: JobRecord) -> int:
    cancelled = whole(record.fields.get("cancelled_at_ms"))
    return {"completed": record.completed_at_ms, "failed": record.last_error_at_ms, "cancelled": cancelled}.get(
        record.status, 0
    )


def _branch(branches: dict[str, Node], path: str) -> Node:
    """The branch of a path, such as `1.2`: the second branch of the first gather."""
    if path not in branches:
        above, _, label = path.rpartition(".")
        branches[path] = Node(label, "branch")
        _branch(branches, above.rpartition(".")[0]).below.append(branches[path])
    return branches[path]


def _operations(record: JobRecord) -> Iterator[tuple[str, Node, str]]:
    """The operations that are over, in the order of their ends, then those that are not: path, node, and its group."""
    fields, run = record.fields, Run.read(record.fields.get("run", ""))
    memos = [(name.removeprefix(STEP), Memo.read(text)) for name, text in fields.items() if name.startswith(STEP)]
    for name, memo in sorted(memos, key=lambda entry: entry[1].number if entry[1] else 0):
        if memo is not None and memo.outcome != RETURNED and not undone(name):
            path, _, base = name.rpartition("/")
            took, note = max(0, memo.ended_ms - memo.began_ms), error_of(memo) or _undo_of(fields, name)
            group = group_of(record.id, run, name) if memo.kind in ("call", "map") else ""
            yield path, Node(base, memo.kind, memo.outcome, took, clean_text(note, _BRIEF)), group
    waits = RunWait.read(fields.get("waits"))
    for wait in waits:
        path, _, base = wait.name.rpartition("/")
        until = instant(wait.until_ms or 0)
        note = "" if until is None else f"until {until:%Y-%m-%d %H:%M:%S %z}"
        yield path, Node(base, "step" if wait.kind == "retry" else wait.kind, "waits", None, note), wait.group
    known = {wait.name for wait in waits}
    for field_name, text in fields.items():
        name = field_name.removeprefix(TRIES)
        if field_name.startswith(TRIES) and name not in known:
            path, _, base = name.rpartition("/")
            yield path, Node(base, "step", "tried", None, text.split(" ", 3)[-1]), ""


def _nodes(record: JobRecord) -> Iterator[tuple[str, Node, str]]:
    """The nodes of a flow, in the order in which they were declared."""
    for each in flows.nodes(record):
        took = max(0, each.ended_ms - each.began_ms) if each.ended_ms else None
        yield "", Node(each.name, each.kind, each.status, took, each.note), each.group


def _undo_of(fields: Mapping[str, str], name: str) -> str:
    memo = Memo.read(fields.get(STEP + undo_name(name), ""))
    if memo is not None:
        return "undone" if memo.outcome == "ok" else f"not undone: {memo.value}"
    if UNDO + name not in fields:
        return ""
    return "not undone yet" if name in to_undo(fields) else "can be undone"


def _jobs_of(queue: Settings, operation: Node, group: str, depth: int, left: list[int]) -> RoundTrips[None]:
    """Add the job of a `call`, or say how far those of a `map` are."""
    fields = yield from groups.read(queue, group)
    if not fields:
        return
    if operation.kind == "map":
        batch = BatchProgress.from_fields(group, fields, int(fields["waiting"]))
        failed = f", {batch.failed:,} failed" if batch.failed else ""
        done = f"{batch.completed:,} of {batch.total:,} completed{failed}; batch {group}"
        operation.note = f"{operation.note}; {done}" if operation.note else done
        return
    child = yield from _job(queue, f"{group}-0-{fields.get('generation', '')}", depth + 1, left)
    if child is not None:
        operation.below.append(child)
