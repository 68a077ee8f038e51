"""`schedq workflows` lists runs of workflows; `schedq job ID --tree` shows one as a tree."""

from __future__ import annotations

import shlex

import click
from rich.text import Text
from rich.tree import Tree

from schedq.cli import output
from schedq.cli.lazy_group import LazyGroup
from schedq.cli.params import QUEUE_NAME, json_option, queue_option, redis_option, state_option, task_option
from schedq.cli.queues import queue_of_job, typed_again, warn_if_no_task
from schedq.inspect.display import count
from schedq.inspect.run_tree import STATES, Node, run_list, tree
from schedq.model.escaping import harmless
from schedq.model.times import span
from schedq.queue.queue import Queue


@click.group(
    cls=LazyGroup,
    table={"ls": ("run_tree:ls", "List runs: how far each is, and what it waits for.")},
    epilog="Example:  schedq workflows ls orders",
)
def workflows() -> None:
    """List runs of workflows."""


@click.command(epilog="Example:  schedq workflows ls orders --state failed")
@click.argument("name", required=False, type=QUEUE_NAME)
@task_option
@state_option(STATES, f"One of {', '.join(STATES)}; repeatable.")
@click.option("--cursor", metavar="C", help="With one state: the start of the next page, as printed.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Maximum per state.")
@queue_option
@redis_option
@json_option
def ls(
    name: str | None,
    task: str | None,
    states: tuple[str, ...],
    cursor: str | None,
    limit: int,
    queue_name: str | None,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """List runs of workflows of the queue NAME, first those that have not ended. A run that waits is delayed.

    It looks at 40,000 jobs. Those that have not begun are listed if a live worker has their workflow.
    """
    with queue_of_job(name or queue_name, redis_url) as queue:
        page, name = queue._drive(run_list(queue.settings, states or STATES, task or "", limit, cursor)), queue.name
        if task and not page.runs:
            warn_if_no_task(queue, [task])
    if as_json:
        output.show_json({"queue": name, **page._asdict()})
        return
    if page.runs:
        rows = [
            (
                it["id"],
                it["state"],
                f"{it['task']} {it['flow']}".strip(),
                f"{it['operations']:,}",
                span(it["took_ms"]),
                it["undo"] or it["waits"],
            )
            for it in page.runs
        ]
        output.show(output.table(["id", "state", "task", "done", "took", "note"], rows, right=["done"], times=(1, 4)))
    found = count(len(page.runs), "run")
    output.line(f"queue {name}: {found}, {page.looked:,} of {count(page.total, 'job')} looked at")
    again = typed_again("workflows ls", name, redis_url, limit) + (f" --task {shlex.quote(task)}" if task else "")
    for state, at in page.cursors.items():
        output.line(f"there may be more {state} ones: {again} --state {state} --cursor {at}")


def show(queue: Queue, job_id: str, *, as_json: bool) -> bool:
    """Print the tree of a job; returns whether it is stored."""
    node = queue._drive(tree(queue.settings, job_id))
    if node is None:
        return False
    if as_json:
        output.show_json(node.to_dict())
    else:
        made = Tree(_line(node))
        _add(made, node)
        output.show(made)
    return True


def _add(made: Tree, node: Node) -> None:
    for each in node.below:
        _add(made.add(_line(each)), each)


def _line(node: Node) -> Text:
    took = "" if node.took_ms is None else span(node.took_ms)
    name = f"branch {node.name}" if node.kind == "branch" else node.name
    return Text(harmless("  ".join(filter(None, (name, node.state, took, node.note)))))
