"""A season of videos: each in several sizes, made at the same time, and a picture from whichever machine is first."""

from __future__ import annotations

from collections import Counter

from schedq import BatchResults, Flow, FlowNode
from workflows.queues import queue

SIZES = (360, 720, 1080)
ran: Counter[str] = Counter()
without_gpu: list[str] = []
"""Why machines with a graphics processor are away. Tests put something in."""


@queue.task
def probe(video: str) -> list[str]:
    """The sizes that a video can have."""
    ran["probe"] += 1
    return [f"{video}-{size}" for size in SIZES]


@queue.task(max_attempts=5, timeout=7200)
def transcode(rendition: str) -> str:
    """Make one size of it."""
    ran["transcode"] += 1
    return f"{rendition}.mp4"


@queue.task(max_attempts=2)
def draw_by_gpu(video: str) -> str:
    """Draw its picture fast, if there is a machine for that."""
    if without_gpu:
        raise ConnectionError(without_gpu[0])
    ran["gpu"] += 1
    return f"{video}.avif"


@queue.task
def draw_by_cpu(video: str) -> str:
    """Draw its picture slowly."""
    ran["cpu"] += 1
    return f"{video}.jpeg"


@queue.task
def package(parts: BatchResults[str], picture: str) -> str:
    """Put everything together; returns what to stream."""
    return f"{picture.partition('.')[0]}: {len([*parts])} sizes, {picture}"


@queue.task
def announce(season: str, episodes: BatchResults[str]) -> list[str]:
    """Tell the subscribers; returns what there is to see."""
    return [season, *episodes]


@queue.flow
def ladder(flow: Flow, video: str) -> FlowNode[str]:
    """Prepare one video. The picture that comes second is called off."""
    parts = flow.map(transcode, flow.call(probe, video).result, concurrency=2)
    picture = flow.first(flow.call(draw_by_gpu, video), flow.call(draw_by_cpu, video))
    return flow.call(package, parts.result, picture.result)


@queue.flow
def season(flow: Flow, name: str, episodes: list[str]) -> FlowNode[list[str]]:
    """Prepare all videos of a season, two at a time: each is a flow of its own."""
    prepared = flow.map(ladder, episodes, concurrency=2)
    return flow.call(announce, name, prepared.result)
