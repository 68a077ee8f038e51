"""Reindexing after a pause: two seconds after the last edit, and at the latest 20 seconds after the first one."""

from __future__ import annotations

from schedq import Debounce, Queue

queue = Queue("search")
index: dict[int, str] = {}
"""What can be found; stands for a search engine."""


@queue.task(unique=Debounce("document", wait=2, max_wait=20))
def reindex(document: int, text: str) -> None:
    """Index the text of the latest edit."""
    index[document] = text
