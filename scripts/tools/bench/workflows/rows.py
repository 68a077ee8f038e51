"""The measurements. Each returns figures by title; times are medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

from schedq.model.groups import ENDED
from schedq.model.ids import new_request
from schedq.model.outcome import suspended
from schedq.model.records import ClaimedJob, Settlement
from schedq.model.runs import RunWait
from schedq.transitions import claim, groups, settle
from schedq.transitions.groups import MOST_ITEMS
from schedq.worker.fetcher import MOST_CLAIMED
from scripts.tools.bench.limits.queues import Meter
from scripts.tools.bench.workflows.place import Place
from tests.waiting import until

Figures = dict[str, float]
_CONCURRENCY: Final = 100
_LOOK_S: Final = 0.002
_SLOW_MS: Final = 5
_LOOP_MS: Final = 2
_RUN: Final = 400
"""The steps of one run, whose record keeps 500 outcomes."""


class Size(NamedTuple):
    """How much is measured."""

    steps: int
    runs: int
    rounds: int
    children: int
    million: int
    suspended: int


FULL: Final = Size(steps=3000, runs=100, rounds=200, children=100_000, million=1_000_000, suspended=100_000)
QUICK: Final = Size(steps=200, runs=10, rounds=10, children=2000, million=20_000, suspended=1000)


def steps(place: Place, size: Size) -> Figures:
    """Steps that do nothing, recorded one by one."""
    with place.worker(_CONCURRENCY):
        rates = []
        for _ in range(max(1, size.steps // _RUN)):
            began, ended = place.app.steps.enqueue(min(size.steps, _RUN)).result(600)
            rates.append(min(size.steps, _RUN) / (ended - began))
        each = max(1, size.steps // 50)
        jobs = [place.app.steps.enqueue(each) for _ in range(size.runs)]
        spans = [job.result(600) for job in jobs]
    many = size.runs * each / (max(span[1] for span in spans) - min(span[0] for span in spans))
    return {"steps a second, one run": statistics.median(rates), f"the same, {size.runs} runs": many}


def waits(place: Place, size: Size) -> Figures:
    """A run that is suspended, and one that a message wakes."""
    meter, settings = Meter(place.server), place.queue.settings
    for _ in range(size.rounds):
        job = place.app.wait.enqueue()
        (found,) = place.queue._ask(claim.claim(settings, new_request())).jobs
        wait = RunWait("receive", "receive go", None, "go")
        operation = settle.settle(settings, [suspended(found, [wait])])
        meter.ms("suspend", lambda: place.queue._ask(operation))  # noqa: B023
        meter.ms("send", lambda: job.send("go", 1))  # noqa: B023
    place.queue.purge()
    costs = {kind: 1000 * statistics.median(taken) for kind, taken in meter.taken_ms.items()}
    with place.worker(_CONCURRENCY):
        woken = _woken(place, size.rounds)
        resumed = [_resumed(place, 100) for _ in range(max(3, size.rounds // 10))]
    return {
        "suspend a run, µs of Redis": costs["suspend"],
        "send it a message, µs of Redis": costs["send"],
        "from the message until the run continues, ms": statistics.median(woken),
        "the same after 100 steps, ms": statistics.median(resumed),
    }


def _woken(place: Place, rounds: int) -> list[float]:
    job, sent = place.app.listen.enqueue(rounds), []
    for number in range(rounds):
        place.until_suspended(1)
        sent.append(time.monotonic())
        job.send("go", number)
    return [1000 * (at - before) for at, before in zip(job.result(60), sent, strict=True)]


def _resumed(place: Place, steps: int) -> float:
    job = place.app.resume.enqueue(steps)
    place.until_suspended(1)
    sent = time.monotonic()
    job.send("go", 1)
    went_on: float = job.result(60)
    return 1000 * (went_on - sent)


def children(place: Place, size: Size) -> Figures:
    """A batch of jobs that do nothing, compared with as many plain jobs."""
    count = size.children
    before = place.used_bytes()
    with place.queue.batch("many", place.app.child, results=False) as batch:
        batch.add(range(count))
    waiting = (place.used_bytes() - before) / count
    in_batch = _drained(place, count, lambda: batch.progress().status == "completed")
    bits = 8 * place.store.strlen(place.queue.settings.keys.group("many") + ":counted")
    place.store.flushall()
    place.app.child.enqueue_many([((number,), {}) for number in range(count)])
    plain = _drained(place, count, lambda: place.queue.stats()["completed_total"] > count)
    return {
        "children a second": in_batch[0],
        "plain jobs a second": plain[0],
        "a child, µs of Redis": in_batch[1],
        "a plain job, µs of Redis": plain[1],
        "a child that waits, bytes": waiting,
        "a child that has ended, bits": 2 * bits / count,
    }


def _drained(place: Place, count: int, is_done: Callable[[], bool]) -> tuple[float, float]:
    """Jobs a second, and microseconds of Redis for each."""
    before, began = place.used_us(), time.monotonic()
    with place.worker(_CONCURRENCY):
        until(is_done, within=600)
    return count / (time.monotonic() - began), (place.used_us() - before) / count


def callbacks(place: Place, size: Size) -> Figures:
    """How soon the callback of a batch follows its last child."""
    late = []
    with place.worker(_CONCURRENCY):
        for number in range(max(3, size.rounds // 4)):
            with place.queue.batch(f"b{number}", place.app.child, then=place.app.after) as batch:
                batch.add(range(20))
            batch.wait(60)
            last, began = batch.then_job().result(60)
            late.append(1000 * (began - last))
    return {"from the last child to `then`, ms": statistics.median(late)}


def graphs(place: Place, size: Size) -> Figures:
    """How soon a node of a flow follows the one before it, next to other links; and how long wide flows take."""
    turns, found = max(3, size.rounds // 20), dict[str, list[float]]()
    with place.worker(_CONCURRENCY):
        for _ in range(turns):
            found.setdefault("a link of a flow of 20 nodes", []).extend(_links(_line(place, 20)))
            found.setdefault("the same, 100 nodes", []).extend(_links(_line(place, 100)))
            found.setdefault("a link of 20 by ctx.call", []).extend(_links(place.app.calls.enqueue(20).result(60)))
            chain = place.queue.chain(place.app.relay_all.with_args([]), *[place.app.relay_all] * 19)
            found.setdefault("a link of a chain of 20", []).extend(_links(chain.result(60)))
        before = place.used_us()
        wide = [_wide(place, 100) for _ in range(turns)]
        spent = (place.used_us() - before) / (101 * turns)
        widest = _wide(place, 999)
    links = {f"{title}, ms": 1000 * statistics.median(gaps) for title, gaps in found.items()}
    return links | {
        "a flow of 100 nodes at once and one after them, ms": 1000 * statistics.median(wide),
        "the same: a node, µs of Redis": spent,
        "a flow of 999 nodes at once and one after them, s": widest,
    }


def _links(instants: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(instants)]


def _line(place: Place, count: int) -> list[float]:
    flow = place.queue.flow("line")
    node = flow.call(place.app.relay_all, [])
    for _ in range(count - 1):
        node = flow.call(place.app.relay_all, node.result)
    found: list[float] = flow.start(node).result(60)
    return found


def _wide(place: Place, count: int) -> float:
    """From the start of a flow to its last node."""
    flow = place.queue.flow("wide")
    nodes = [flow.call(place.app.relay) for _ in range(count)]
    last = flow.call(place.app.relay, *(node.result for node in nodes))
    began = time.monotonic()
    ended: float = flow.start(last).result(120)
    return ended - began


def other_queues(place: Place, size: Size) -> Figures:
    """Runs that call jobs of another queue, compared with jobs of their own; one worker process has both queues."""
    app, count, links, maps = place.app, size.children // 20, dict[str, list[float]](), dict[str, list[float]]()
    with place.worker(_CONCURRENCY, "other"):
        for _ in range(max(3, size.rounds // 40)):
            links.setdefault("another queue", []).extend(_links(app.far_calls.enqueue(20).result(60)))
            links.setdefault("its own queue", []).extend(_links(app.calls.enqueue(20).result(60)))
            for title, is_far in (("another queue", True), ("its own queue", False)):
                began, ended = app.maps.enqueue(count, is_far).result(600)
                maps.setdefault(title, []).append(ended - began)
        runs = {
            "another queue": _at_once(app.far_calls, size.runs * 10),
            "its own queue": _at_once(app.calls, size.runs * 10),
        }
    return (
        {f"a link by ctx.call to {title}, ms": 1000 * statistics.median(gaps) for title, gaps in links.items()}
        | {f"ctx.map of {count:,} jobs of {title}, s": statistics.median(spans) for title, spans in maps.items()}
        | {f"{size.runs * 10:,} runs at once, a call each to {title}, s": took for title, took in runs.items()}
    )


def _at_once(task: Any, count: int) -> float:
    """From the first enqueue until all runs have ended."""
    began = time.monotonic()
    for job in task.enqueue_many([((1,), {})] * count):
        job.result(600)
    return time.monotonic() - began


def million(place: Place, size: Size) -> Figures:
    """A very large batch: its longest script, and how soon it replies.

    An empty loop that takes 2 ms runs in between. Its longest time shows how uneven the machine is.
    """
    meter, before, count = Meter(place.server), place.used_bytes(), size.million
    with place.queue.batch("million", place.app.child, results=False) as batch:
        for first in range(0, count, MOST_ITEMS):
            meter.ms("fill", partial(batch.add, range(first, min(count, first + MOST_ITEMS))))
    filled = place.used_bytes() - before
    loop = _loop(place, meter)
    for _ in range(max(3, size.rounds)):
        _settle_by_hand(place, meter, loop)
    loops, _ = meter.taken_ms.pop("loop"), meter.taken_ms.pop("try")
    taken = [ms for kind in meter.taken_ms.values() for ms in kind]
    with place.worker(_CONCURRENCY):
        asked = []
        for _ in range(50):
            began = time.monotonic()
            batch.progress()
            asked.append(1000 * (time.monotonic() - began))
            time.sleep(0.1)
        began = time.monotonic()
        batch.cancel()
        answered = time.monotonic() - began
        until(lambda: batch.progress().status in ENDED, within=600)
        cancelled = time.monotonic() - began
    return {
        f"{count:,} children: MB": filled / 1e6,
        "the same: longest script, ms of Redis": max(taken),
        "the same: scripts over 5 ms": sum(ms > _SLOW_MS for ms in taken),
        "the same: of": len(taken),
        "empty loops of 2 ms in between: longest, ms of Redis": max(loops),
        "these loops: over 5 ms": sum(ms > _SLOW_MS for ms in loops),
        "these loops: of": len(loops),
        "the same: progress, longest, ms": max(asked),
        "the same: cancel returns after, ms": 1000 * answered,
        "the same: all are cancelled after, s": cancelled,
    }


def _loop(place: Place, meter: Meter) -> Callable[[], object]:
    """A script that reads nothing and takes about 2 ms."""
    script = place.store.register_script("local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + i % 7 end return n")
    tried = 100_000
    tries_ms = [meter.ms("try", lambda: script(args=[tried])) for _ in range(50)]
    rounds = round(tried * _LOOP_MS / statistics.median(tries_ms))
    return lambda: script(args=[rounds])


def _settle_by_hand(place: Place, meter: Meter, loop: Callable[[], object]) -> None:
    """Claim twice as many jobs as a claim takes, and settle them together, with a loop between the scripts."""
    queue, settings = place.queue, place.queue.settings
    jobs: list[ClaimedJob] = []
    while len(jobs) < 2 * MOST_CLAIMED:
        operation = claim.claim(settings, new_request(), MOST_CLAIMED)
        meter.ms("claim", lambda: jobs.extend(queue._ask(operation).jobs))  # noqa: B023
        meter.ms("loop", loop)
        meter.ms("advance", lambda: queue._ask(groups.advance(settings)))
    ends = [Settlement("complete", job.id, job.claim_token, text="1.5") for job in jobs]
    while ends:
        words: list[list[str]] = []
        sent = settle.settle(settings, ends)
        meter.ms("settle", lambda: words.append(queue._ask(sent)))  # noqa: B023
        meter.ms("loop", loop)
        ends = [end for end, word in zip(ends, words[0], strict=True) if word == "AGAIN"]


def idle(place: Place, size: Size) -> Figures:
    """Runs that wait, and nothing else."""
    with place.worker(_CONCURRENCY):
        time.sleep(5)
        without_runs = place.requests_a_second(20)
    before, count = place.used_bytes(), size.suspended
    place.app.wait.enqueue_many([((), {})] * count)
    with place.worker(_CONCURRENCY):
        place.until_suspended(count)
        time.sleep(5)
        bytes_each = (place.used_bytes() - before) / count
        with_runs = place.requests_a_second(20)
    return {
        f"{count:,} suspended runs: bytes each": bytes_each,
        "the same: requests a second": with_runs,
        "no runs: requests a second": without_runs,
    }


ROWS: Final = {each.__name__: each for each in (steps, waits, children, callbacks, graphs, other_queues, million, idle)}
