"""The graph of a flow as data for a template: boxes and arrows, from left to right. The template draws SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from schedq.inspect.flows import NodeView
from schedq.model.escaping import harmless
from schedq.model.times import span

MOST_DRAWN: Final = 200
"""A larger graph would be a wall of boxes; its nodes are listed only."""
WIDTH: Final = 164
HEIGHT: Final = 34
_ACROSS: Final = 52
_DOWN: Final = 14
_EDGE: Final = 4
_LONGEST: Final = 20
MARKS: Final = {
    "completed": "✓", "failed": "✗", "running": "▶", "waiting": "…", "skipped": "–", "cancelled": "⊘",
}  # fmt: skip
"""What stands before a node's name, so that its state is not told by color alone."""


class Box(NamedTuple):
    """A node.

    Attributes:
        x, y: its left upper corner.
        label: what is written into it.
        title: all that is known of it.
        status: its state, a class of the style sheet.
        kind: call, map or first.
    """

    x: int
    y: int
    label: str
    title: str
    status: str
    kind: str


class Drawing(NamedTuple):
    """A graph.

    Attributes:
        boxes: its nodes.
        arrows: its edges: SVG paths, and the state of the node from which they come.
        width, height: of the whole.
        alt_text: the graph as text, for screen readers.
    """

    boxes: list[Box]
    arrows: list[tuple[str, str]]
    width: int
    height: int
    alt_text: str


def drawing(nodes: Sequence[NodeView]) -> Drawing | None:
    """The graph of a flow; None if there are no nodes, or too many to be drawn.

    A node is one column to the right of the last one that it waits for, at the height of those before it.
    """
    if not nodes or len(nodes) > MOST_DRAWN:
        return None
    columns = _columns(nodes)
    places: dict[int, tuple[int, int]] = {}
    for n, column in enumerate(columns):
        taken = dict.fromkeys(column, 0.0)
        for number in column:
            before = [places[each][1] for each in nodes[number].after]
            taken[number] = sum(before) / len(before) if before else 0.0
        for row, number in enumerate(sorted(column, key=lambda each: (taken[each], each))):
            places[number] = _EDGE + n * (WIDTH + _ACROSS), _EDGE + row * (HEIGHT + _DOWN)
    boxes = [_box(node, *places[node.number]) for node in nodes]
    arrows = [(_path(places[each], places[node.number]), nodes[each].status) for node in nodes for each in node.after]
    width = 2 * _EDGE + len(columns) * (WIDTH + _ACROSS) - _ACROSS
    height = 2 * _EDGE + max(map(len, columns)) * (HEIGHT + _DOWN) - _DOWN
    return Drawing(boxes, arrows, width, height, _in_words(nodes))


def _columns(nodes: Sequence[NodeView]) -> list[list[int]]:
    """The numbers of the nodes, column by column."""
    depth: list[int] = []
    for node in nodes:
        depth.append(max((depth[each] + 1 for each in node.after), default=0))
    return [[number for number, at in enumerate(depth) if at == column] for column in range(max(depth) + 1)]


def _box(node: NodeView, x: int, y: int) -> Box:
    name = harmless(node.name)
    label = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    took = span(max(0, node.ended_ms - node.began_ms)) if node.ended_ms else ""
    when = (
        "" if node.when == "success" else f"runs after a {node.when}" if node.when == "failure" else "runs at the end"
    )
    where = f"in queue {node.queue}" if node.queue else ""
    title = ", ".join(filter(None, (f"{name}: {node.status}", took, when, where, harmless(node.note))))
    return Box(x, y, f"{MARKS[node.status]} {label}", title, node.status, node.kind)


def _path(start: tuple[int, int], end: tuple[int, int]) -> str:
    """An arrow from the right side of one box to the left side of another."""
    x, y, to_x, to_y = start[0] + WIDTH, start[1] + HEIGHT // 2, end[0] - 3, end[1] + HEIGHT // 2
    bend = _ACROSS // 2
    return f"M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"


def _in_words(nodes: Sequence[NodeView]) -> str:
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.status] = counts.get(node.status, 0) + 1
    said = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"{len(nodes)} nodes: {said}. The table has each."
