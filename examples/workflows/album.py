"""A Celery chord and a chain, migrated.

This was the code before:

chord((thumbnail.s(photo) for photo in photos), contact_sheet.s(album)).delay()
chain(fetch.s(url), thumbnail.s(), hang.s("the hall"))()
"""

from __future__ import annotations

from collections.abc import Iterable

from schedq import RESULT, Batch, BatchResults
from workflows.queues import queue


@queue.task
def fetch(url: str) -> str:
    """Load a photo; returns its name."""
    return url.rpartition("/")[2]


@queue.task
def thumbnail(photo: str) -> str:
    """Make it small."""
    if photo.startswith("broken"):
        raise ValueError(f"{photo} is no photo")
    return f"small {photo}"


@queue.task
def contact_sheet(thumbnails: BatchResults[str], album: str) -> str:
    """Put all of them on a page."""
    return f"{album}: {', '.join(thumbnails)}"


@queue.task
def hang(photo: str, place: str) -> str:
    """Show a photo."""
    return f"{photo} in {place}"


def make_sheet(album: str, photos: Iterable[str]) -> Batch:
    """A job of each photo, at most 50 at a time, then the page. Two in a hundred may be broken."""
    then = contact_sheet.with_args(RESULT, album)
    with queue.batch(f"sheet-{album}", thumbnail, concurrency=50, tolerate=0.02, then=then) as batch:
        batch.add(photos)
    return batch


def show(url: str) -> Batch:
    """Three jobs, of which each begins when the one before has completed."""
    return queue.chain(fetch.with_args(url), thumbnail, hang.with_args(RESULT, "the hall"))
