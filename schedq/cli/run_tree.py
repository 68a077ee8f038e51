"""`schedq job ID --tree`: a workflow's run as a tree."""

from __future__ import annotations

from rich.text import Text
from rich.tree import Tree

from schedq.cli import output
from schedq.inspect.run_tree import Node, tree
from schedq.model.escaping import harmless
from schedq.model.times import span
from schedq.queue.queue import Queue


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
