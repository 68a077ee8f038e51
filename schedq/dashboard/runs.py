"""Runs of workflows: the page that lists them, the chart of one, and how a message is sent to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from starlette.requests import Request

from schedq.dashboard.graphs import drawing
from schedq.dashboard.rendering import PageData
from schedq.dashboard.security import Refusal
from schedq.errors import UsageError
from schedq.inspect import flows, runs
from schedq.inspect.run_tree import STATES, Node, ended_ms, run_list
from schedq.inspect.search import USUALLY_LOOKED
from schedq.model.escaping import harmless
from schedq.model.graph import flow_name
from schedq.model.records import JobRecord
from schedq.model.runs import Run, checked_topic
from schedq.model.tasks import is_task_name
from schedq.model.times import span
from schedq.queue.queue import AsyncQueue

MESSAGE_FIELDS: Final = ("topic", "value")
MOST_VALUE: Final = 20_000
"""Maximum number of characters of a message."""
_ROWS: Final = (20, 50)
"""How many runs a page has of each state, and of one."""
_LOOK: Final = (12_000, USUALLY_LOOKED)
"""How many jobs a page looks at, of all states and of one."""
_MOST_LIVE: Final = 2000
"""A page that looked at more jobs is not live, because that costs too much."""
_MOST_TYPED: Final = 400


async def page(request: Request, queue: AsyncQueue) -> PageData:
    """Runs of one state, page by page, or the first ones of each."""
    task, state, cursor = (request.query_params.get(name, "") for name in ("task", "state", "cursor"))
    task, chosen = task[:_MOST_TYPED], [state] if state in STATES else STATES
    is_one = chosen is not STATES
    cursor = cursor if is_one else ""
    ask = run_list(queue.settings, chosen, task, _ROWS[is_one], cursor or None, _LOOK[is_one])
    found = await queue._drive(ask)
    tasks = sorted(filter(is_task_name, {*found.tasks, *(run["task"] for run in found.runs), task}))
    is_live = not cursor and found.looked <= _MOST_LIVE
    context = {"page": found, "now_ms": found.now_ms, "tasks": tasks, "typed": task, "states": STATES}
    context |= {"state": state, "is_first": not cursor, "is_live": is_live}
    return PageData("workflows.html", context, every_s=5)


def messages(record: JobRecord) -> list[tuple[str, int]]:
    """The topics with messages that nothing has taken, and how many each has."""
    return [*runs.messages(record.fields)]


async def topic_of(queue: AsyncQueue, job_id: str) -> str:
    """A topic for whose messages the run waits; '' if it waits for none."""
    record = await queue.get_job(job_id)
    waits = runs.open_waits(record.fields) if record is not None else ()
    return next((wait.topic for wait in waits if wait.topic), "")


async def send(queue: AsyncQueue, job_id: str, message: Mapping[str, str]) -> tuple[str, int]:
    """Send a message to a job; return what was done in words, and how many messages were sent.

    Raises:
        Refusal: the value is no JSON.
        UsageError: the topic or the value is invalid, or there are too many messages.
    """
    topic, text = checked_topic(message.get("topic", "").strip()), message.get("value", "")
    try:
        value = json.loads(text)
    except ValueError:
        raise Refusal(
            400, f"The value {harmless(text)[:80]!r} is not JSON: write a text in quotes, or true, 17, {{…}} or null."
        ) from None
    is_sent = await queue.job(job_id).asend(topic, value)
    if not is_sent:
        raise UsageError(f"job {job_id} takes no message: it has ended, or does not exist")
    return f"a message on topic {topic} was sent to job {job_id}", 1


def flow_facts(record: JobRecord | None) -> dict[str, Any]:
    """What the page of a flow's job shows in addition: its name and its graph."""
    if record is None:
        return {"flow": "", "graph": None}
    return {"flow": flow_name(record.payload), "graph": drawing(flows.nodes(record))}


# -- the chart of a run: a row for each operation and branch, with a bar from its begin to its end

MOST_ROWS: Final = 500
"""The most rows of a chart."""
_FORKS: Final = ("gather", "first")
_OPEN: Final = ("waits", "tried", "running", "open")
_COLORS: Final = {"ok": "good", "completed": "good", "error": "bad", "failed": "bad", "timeout": "warn"}
_LEAST: Final = 0.05
"""The least width of a bar, in percent; its outline is two pixels wide in any case."""
_NEVER: Final = 1 << 62
_PARTS: Final = 200
"""The axis of a run that has not ended grows by this part of it, or by a second: a page is not sent for less."""


class RunRow(NamedTuple):
    """One row of a chart.

    Attributes:
        node: what it shows.
        depth: how far it is indented.
        value: what the operation returned, as JSON, or ''.
        color: the class of its outcome.
        x: the left edge of its bar, in percent.
        width: of its bar, in percent; 0 without a bar. An open bar goes beyond the right end, where it is cut.
    """

    node: Node
    depth: int
    value: str
    color: str
    x: float
    width: float


class RunChart(NamedTuple):
    """A chart, ready to be rendered.

    Attributes:
        rows: in the order of their beginnings, those of a branch below it.
        left_out: how many more there are.
        done: how many operations are over.
        began_ms: the left end of the axis.
        ended_ms: the right end; 0 for now.
        ticks: how long after its begin each quarter of the axis begins, in words; the last is the length of the axis.
    """

    rows: list[RunRow]
    left_out: int
    done: int
    began_ms: int
    ended_ms: int
    ticks: list[str]


def chart(run: Node, record: JobRecord, now_ms: int) -> RunChart | None:
    """The chart of a run; None if there is nothing to show."""
    if not run.below:
        return None
    began_ms, end_ms = Run.read(record.fields.get("run", "")).began_ms or record.enqueued_at_ms, ended_ms(record)
    found = [*_lines(run, 0, began_ms, end_ms)]
    began_ms = min([began_ms, *(node.began_ms for node, _ in found if node.began_ms)])
    part = max(1000, (now_ms - began_ms) // _PARTS)
    until_ms = end_ms or began_ms - (began_ms - now_ms) // part * part
    length = max([until_ms, began_ms + 1, *(node.ended_ms for node, _ in found)]) - began_ms
    rows = [_row(node, depth, began_ms, length) for node, depth in found[:MOST_ROWS]]
    done = sum(node.kind != "branch" and node.ended_ms > 0 for node, _ in found)
    ticks = [span(length * n // 4) for n in range(5)]
    return RunChart(rows, len(found) - len(rows), done, began_ms, end_ms, ticks)


def _lines(above: Node, depth: int, began_ms: int, end_ms: int) -> Iterator[tuple[Node, int]]:
    """What is below a node, by the beginnings; completes what is not recorded of them."""
    below, inside = above.below, {}
    for node in below:
        if node.kind == "branch":
            inside[node.path] = [*_lines(node, depth + 1, began_ms, end_ms)]
            node.began_ms = min(each.began_ms for each, _ in inside[node.path])
            ends = [each.ended_ms for each, _ in inside[node.path]]
            node.ended_ms = max(ends) if all(ends) else 0
            node.state = "" if node.ended_ms else "open"
        elif node.state in _OPEN:
            node.began_ms = node.began_ms or max([began_ms, *(each.ended_ms for each in below)])
            if end_ms:
                node.state, node.ended_ms = "cancelled", end_ms
    forks = [node for node in below if node.kind in _FORKS]  # in the order of the numbers in their branches' paths
    for number, fork in enumerate(forks, 1):
        of_fork = [
            each.began_ms for each in below if each.path.split(".")[-2:-1] == [str(number)] and each.path in inside
        ]
        fork.began_ms = min([fork.began_ms, *of_fork])
    for node in sorted(below, key=lambda node: (node.began_ms or _NEVER, node.kind == "branch")):
        yield node, depth
        yield from inside.get(node.path, ()) if node.kind == "branch" else ()


def _row(node: Node, depth: int, began_ms: int, length: int) -> RunRow:
    """The row of a node on an axis that begins at `began_ms`."""
    is_open, is_plain = node.state in _OPEN, node.value is None or node.kind == "map" or node.state == "error"
    color = f"{node.kind if node.kind == 'branch' else ''} {'open' if is_open else _COLORS.get(node.state, '')}".strip()
    value = "" if is_plain else json.dumps(node.value, ensure_ascii=False)
    if not node.began_ms:
        return RunRow(node, depth, value, color, 0, 0)
    x = min(100 - _LEAST, 100 * (node.began_ms - began_ms) / length)
    width = 110 - x if is_open else max(_LEAST, 100 * (node.ended_ms - node.began_ms) / length)
    return RunRow(node, depth, value, color, round(x, 2), round(width, 2))
