"""Operator actions: every method, every command that ends by itself, and every page of the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any, Final
from urllib.parse import urlencode

from schedq.dashboard.api import ROUTES
from schedq.doctor.examination import examine
from schedq.queue.queue import Queue
from scripts.tools.blocktime.million.million_jobs import BATCH, NAME, MillionJobs

FILTERS: Final[Mapping[str, dict[str, Any]]] = {
    "": {},
    "task": {"task": "invoice"},
    "age": {"newer_than": 86_400},
    "text": {"text": "user7@"},
    "text, none has it": {"text": "no such text"},
}
Asks = dict[str, Callable[[], object]]


def verbs(million: MillionJobs) -> Asks:
    """Every method: first those that read, then those that write."""
    return {**_finding(million), **_looking(million), **_acting(million)}


def _finding(million: MillionJobs) -> Asks:
    find, asks = million.queue.inspector.find, Asks()
    for place in ("pending", "delayed", "failed"):
        for name, wanted in FILTERS.items():
            asks[f"find {place}{name and ', '}{name}"] = lambda place=place, wanted=wanted: find(place, **wanted)  # type: ignore[misc]
        for part in (0.5, 0.999):
            cursor = million.cursor(place, part)
            asks[f"find {place}, after {part:.0%}"] = lambda place=place, cursor=cursor: find(place, cursor=cursor)  # type: ignore[misc]
            lists = getattr(million.queue, f"list_{place}")
            offset = int(million.sizes[place] * part)
            asks[f"list_{place}, from {offset:,}"] = lambda lists=lists, offset=offset: lists(offset, 100)  # type: ignore[misc]
    asks["find failed, error, none has it"] = lambda: find("failed", error="no such error")
    asks["find failed, 1,000"] = lambda: find("failed", limit=1000)
    return asks


def _looking(million: MillionJobs) -> Asks:
    queue, inspector, asks = million.queue, million.queue.inspector, Asks()
    for place in ("pending", "delayed", "failed"):
        for where, part in (("first", 0.0), ("middle", 0.5), ("last", 1.0)):
            job_id = million.at(place, part)
            asks[f"why, {where} of {place}"] = lambda job_id=job_id: inspector.why(job_id)  # type: ignore[misc]
    asks |= {
        "why, unknown": lambda: inspector.why("unknown"),
        "timeline": lambda: inspector.timeline(million.at("failed", 0.5)),
        "get_job": lambda: queue.get_job(million.at("pending", 0.5)),
        "forecast, 1 h": lambda: inspector.forecast(3600),
        "forecast, 24 h": lambda: inspector.forecast(86_400),
        "forecast, 31 d": lambda: inspector.forecast(31 * 86_400),
        "pulse": inspector.pulse,
        "samples": inspector.samples,
        "errors, 1,000": inspector.errors,
        "errors, 5,000": lambda: inspector.errors(5000),
        "log, 1,000": lambda: inspector.log(limit=1000),
        "stats": queue.stats,
        "list_workers": queue.list_workers,
        "list_queues": queue.list_queues,
        "list_processing": queue.list_processing,
        "list_completed": queue.list_completed,
        "schedules.list, first": lambda: queue.schedules.list(limit=100),
        "schedules.list, from 5,000": lambda: queue.schedules.list(offset=5000, limit=100),
        "doctor": lambda: examine(million.server.unix_url, [NAME]),
    }
    return asks


def _acting(million: MillionJobs) -> Asks:
    """Act on one job from the middle of its list at a time, and on batches of a thousand."""
    queue, act_on, n = million.queue, million.queue.inspector.act_on, count(1)

    def middle(place: str) -> str:
        return million.at(place, 0.5 + next(n) / 10_000)

    def again(verb: Callable[[Queue, str], object], place: str) -> Callable[[], object]:
        return lambda: verb(queue, middle(place))

    asks: Asks = {
        "requeue one": again(lambda queue, job_id: queue.requeue(job_id), "failed"),
        "requeue one, of the newest": lambda: queue.requeue(million.at("failed", next(n) / 10_000)),
        "requeue one, of the oldest": lambda: queue.requeue(million.at("failed", 1 - next(n) / 10_000)),
        "cancel one, pending": again(lambda queue, job_id: queue.cancel(job_id), "pending"),
        "cancel one, delayed": again(lambda queue, job_id: queue.cancel(job_id), "delayed"),
        "run_now one": again(lambda queue, job_id: queue.run_now(job_id), "delayed"),
        "reschedule one": again(lambda queue, job_id: queue.reschedule(job_id, delay=9e5), "delayed"),
    }
    for place in ("pending", "delayed", "failed"):
        asks[f"delete one, {place}"] = again(lambda queue, job_id: queue.inspector.act("delete", [job_id]), place)
    for action, place in (
        *(("requeue", "failed"), ("cancel", "pending"), ("cancel", "delayed"), ("run_now", "delayed")),
        *(("delete", "pending"), ("delete", "delayed"), ("delete", "failed")),
    ):
        asks[f"{action} 1,000 {place}"] = lambda action=action, place=place: act_on(action, place, limit=1000)  # type: ignore[misc]
    asks["reschedule 1,000 delayed"] = lambda: act_on("reschedule", "delayed", limit=1000, delay=9e5)
    asks["pause"] = queue.pause
    asks["resume"] = queue.resume
    return asks


def commands(million: MillionJobs) -> Iterator[list[str]]:
    """The arguments of commands; each runs in its own process."""
    middle = million.at("failed", 0.5)
    here = ["--queue", NAME]
    yield ["--version"]
    yield ["stats"]
    yield ["stats", NAME]
    yield ["jobs", NAME]
    yield ["jobs", NAME, "--state", "failed", "--offset", "150000"]
    yield ["jobs", NAME, "--state", "failed", "--task", "invoice"]
    yield ["jobs", NAME, "--state", "pending", "--text", "no such text"]
    yield ["job", middle, *here]
    yield ["why", million.at("pending", 0.5), *here, "--json"]
    yield ["forecast", "24h", *here]
    yield ["top", NAME, "--once"]
    yield ["workers", NAME]
    yield ["schedules", "ls", *here]
    yield ["requeue", million.at("failed", 0.7), *here]
    yield ["cancel", million.at("pending", 0.7), *here]
    yield ["reschedule", million.at("delayed", 0.7), *here, "--now"]
    yield ["pause", NAME]
    yield ["resume", NAME]
    yield ["doctor", NAME]
    yield ["doctor"]
    yield ["tasks", NAME]
    yield ["workers"]
    yield ["top", "--once"]
    for words in (
        ["workflows", "ls"],
        ["gates", "ls"],
        ["gates", "show", "gate1"],
        ["batches", "ls"],
        ["batches", "failures", BATCH],
    ):
        yield [*words, *here]
    yield ["batches", "show", BATCH]
    yield ["job", middle]
    yield ["why", million.at("delayed", 0.5)]
    yield ["schedules", "show", "s1"]
    yield ["schedules", "next", "s1"]


def pages(million: MillionJobs) -> Iterator[str]:
    """The paths of the dashboard's pages."""
    here = f"/queues/{NAME}"
    yield from ("/", "/jobs", "/failed", "/schedules", "/workers")
    for text in (million.at("failed", 0.5), "user7@", "no such text"):
        yield f"/search?{urlencode({'q': text})}"
    yield here
    yield f"{here}/tasks"
    yield f"{here}/tasks/invoice"
    yield f"{here}/gates"
    yield f"{here}/gates/gate1"
    yield f"{here}/batches"
    yield f"{here}/workflows"
    yield f"{here}/new"
    for state in ("pending", "delayed", "failed"):
        yield f"{here}/jobs?state={state}"
        yield f"{here}/jobs?state={state}&limit=500"
        yield f"{here}/jobs?state={state}&cursor={million.cursor(state, 0.5)}"
        yield f"{here}/jobs?state={state}&text=no+such+text"
    yield f"{here}/jobs/{million.at('failed', 0.5)}"
    yield f"{here}/jobs/{million.at('pending', 0.5)}"
    yield f"{here}/failed"
    yield f"{here}/delayed"
    yield f"{here}/delayed?window=7d"
    yield f"{here}/schedules"
    yield f"{here}/schedules?offset=5000"
    yield f"{here}/schedules/s1"
    yield f"{here}/workers"
    yield f"{here}/log?limit=1000"
    yield from _answers(million)


def _answers(million: MillionJobs) -> Iterator[str]:
    """The paths of the dashboard's API."""
    ids = {"job_id": million.at("failed", 0.5), "schedule_id": "s1", "gate": "gate1", "batch": BATCH}
    for path in ROUTES:
        yield path.format(queue=NAME, **ids)
