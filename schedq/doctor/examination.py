"""The examination: asks the rooms one after the other, for each server and each queue, and gathers what they find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from schedq.clocks import sleep
from schedq.doctor import (
    agreement,
    clock,
    conformance,
    delayed,
    histories,
    latency,
    life,
    memory,
    names,
    persistence,
    places,
    replication,
    schedules,
    scripts,
    server,
    standing,
    strays,
    timetable,
    types,
    unknown,
    version,
)
from schedq.doctor.asking import plain
from schedq.doctor.finding import LEVELS, Finding
from schedq.embedded.places import SCHEME
from schedq.errors import Conflict, QueueFull, SchedqError, StoreUnavailable, UsageError
from schedq.operations import Block, Flow
from schedq.queue import Queue

T = TypeVar("T")
SAMPLE: Final = 2_000
"""Entries of each place of a queue that are looked at, unless more are asked for: it answers within a second."""
_NOBODY: Final = "schedq"
"""Name of a queue that is only there to ask about its server."""
_MORE: Final = "; --sample N looks at more"
_RETRY_S: Final = 1.0
_AGAIN_S: Final = 0.3
_MOST_SUSPECTS: Final = 200
_HANDOVER_S: Final = 2.0
_POLL_S: Final = 0.1


@dataclass(slots=True)
class Report:
    """What an examination found.

    Attributes:
        redis: where, without a password.
        findings: worst first.
        queues: the ones that were examined.
        server: a few facts about the server, the first one of a cluster.
        limits: what was not looked at, in words.
    """

    redis: str
    findings: list[Finding] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    server: dict[str, Any] = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)


def examine(redis: object = None, chosen: Sequence[str] = (), *, sample: int = SAMPLE) -> Report:
    """Examine the server and the queues named, else all that are found there.

    Args:
        redis: as `Queue` takes it.
        chosen: names of queues.
        sample: entries of each place that are looked at.

    Raises:
        UsageError: the URL or a name can't be one. What the server refuses is a finding.
    """
    with _visited(chosen[0] if chosen else _NOBODY, redis) as queue:
        examination = _Examination(queue.address.label, redis, sample)
        try:
            examination.run(queue, chosen)
        except StoreUnavailable as error:
            examination.report.findings.append(_unreachable(error))
        except UsageError as error:
            examination.report.findings.append(_refused(error))
    report = examination.finished()
    report.findings.sort(key=lambda finding: (LEVELS.index(finding.level), finding.queue, finding.code))
    return report


class _Examination:
    def __init__(self, label: str, redis: object, sample: int) -> None:
        self.report = Report(label)
        self._redis = redis
        self._sample = sample
        self._servers: set[str] = set()
        self._refused: set[str] = set()
        self._patience_s = _HANDOVER_S

    def run(self, queue: Queue, chosen: Sequence[str]) -> None:
        self._ask(queue, _greet())
        looks = self._ask(queue, clock.look())
        self._server(queue)
        for name in chosen or self._names(queue):
            with _visited(name, self._redis) as visited:
                self._server(visited)
                self._queue(visited)
        self._add(clock.judge(looks + self._ask(queue, clock.look())))

    def finished(self) -> Report:
        if self._refused:
            self._add(iter([_not_permitted(sorted(self._refused))]))
        return self.report

    def _names(self, queue: Queue) -> list[str]:
        tagged = queue.settings.tagged
        found = self._ask(queue, names.look(10 * self._sample, tagged=tagged))
        self._add(names.judge(found, tagged=tagged))
        if tagged:
            self._limit("names of queues that only other programs use were looked for on one node of the cluster")
        if not found.is_whole:
            self._limit(f"names of queues were looked for among {10 * self._sample:,} keys{_MORE}")
        try:
            listed = queue.list_queues()
        except SchedqError as error:
            self._add(iter([_refused(error)]))
            listed = []
        return sorted({*listed, *names.usable(found.seen, tagged=tagged)})

    def _server(self, queue: Queue) -> None:
        """The server that holds a queue, if it was not met before: a cluster has several."""
        found = self._ask(queue, server.look())
        if found.run_id in self._servers:
            return
        self._servers.add(found.run_id)
        self._add(version.judge(found, is_embedded=self.report.redis.startswith(SCHEME)))
        for room in (memory, persistence, replication, scripts):
            self._add(room.judge(found))
        speed = self._ask(queue, latency.look(queue.settings))
        self._add(latency.judge(speed))
        self._add(conformance.judge(self._ask(queue, conformance.look(queue.settings))))
        self.report.server = self.report.server or server.summary(found) | latency.summary(speed)

    def _queue(self, queue: Queue) -> None:
        before = len(self.report.findings)
        self._examine(queue)
        if queue.settings.tagged:
            found = self.report.findings
            found[before:] = [finding.tagged(queue.settings.keys.prefix) for finding in found[before:]]

    def _examine(self, queue: Queue) -> None:
        keys, name = queue.settings.keys, queue.name
        self.report.queues.append(name)
        with suppress(SchedqError):  # what is wrong with the key is said by the rooms
            queue.learn_settings()
        self._add(types.judge(keys, self._ask(queue, types.look(keys))))
        alive = self._alive(queue)
        self._add(life.judge(name, alive))
        is_cached = self._ask(queue, scripts.look())
        self._add(scripts.judge_cached(name, is_cached=is_cached, has_promoter=alive.has_promoter))
        waits = self._ask(queue, delayed.look(keys, alive.now_ms))
        self._add(delayed.judge(name, waits, is_tended=alive.is_tended))
        self._add(unknown.judge(name, self._ask(queue, unknown.look(queue.settings)), alive.now_ms))
        self._add(clock.judge_ahead(name, *self._ask(queue, clock.ahead(keys.log))))
        self._add(histories.judge(name, self._ask(queue, histories.look(queue.settings, alive.now_ms))))
        self._add(agreement.judge(name, self._ask(queue, agreement.look(queue.settings, alive.now_ms))))
        self._schedules(queue, alive)
        self._misplaced(queue, is_tended=alive.is_tended)

    def _alive(self, queue: Queue) -> life.Life:
        """Who is there; where nobody wakes, again until another one has had time to take over: once for all queues."""
        found = self._ask(queue, life.look(queue.settings))
        while not found.has_promoter and not found.is_deserted and self._patience_s > 0:
            sleep(_POLL_S)
            self._patience_s -= _POLL_S
            found = self._ask(queue, life.look(queue.settings))
        return found

    def _schedules(self, queue: Queue, alive: life.Life) -> None:
        keys, now_ms = queue.settings.keys, alive.now_ms
        found = self._ask(queue, schedules.look(keys, self._sample))
        before = {it.id: kind for it in found.standing if (kind := timetable.kind_of(it, now_ms, found.tasks))}
        if before:
            # One that is written, deleted or fired just now is left out.
            sleep(_AGAIN_S)
            again = self._ask(queue, schedules.stand(keys, list(before)))
            odd = [it for it in again if timetable.kind_of(it, now_ms, found.tasks) == before[it.id]]
            self._add(timetable.judge(queue.name, odd, now_ms, found.tasks, is_tended=alive.is_tended))
        for words in schedules.limits(found):
            self._limit(f"queue {queue.name}: {words}{_MORE}")

    def _misplaced(self, queue: Queue, *, is_tended: bool) -> None:
        keys = queue.settings.keys
        found = self._ask(queue, places.look(keys, self._sample))
        suspects, unjudged = places.suspects(found)
        jobs = self._ask(queue, standing.look(keys, suspects[:_MOST_SUSPECTS], found.lengths))
        before = {job.id: kind for job in jobs if (kind := strays.kind_of(job))}
        if before:
            # A job that a program of other make is moving, or that is mended in a moment, is left out.
            sleep(_AGAIN_S)
            again = self._ask(queue, standing.look(keys, sorted(before), found.lengths))
            jobs = [job for job in again if strays.kind_of(job) == before[job.id]]
            more = len(suspects) - min(len(suspects), _MOST_SUSPECTS)
            self._add(strays.judge(queue.name, jobs, is_tended=is_tended, more=more))
        for words in places.limits(found, unjudged):
            self._limit(f"queue {queue.name}: {words}{_MORE}")

    def _add(self, findings: Iterator[Finding]) -> None:
        self.report.findings += findings

    def _limit(self, words: str) -> None:
        self.report.limits.append(words)

    def _ask(self, queue: Queue, flow: Flow[T]) -> T:
        """Drive a flow; what the server refuses is noted, and the flow goes on without.

        Raises:
            StoreUnavailable: it does not answer any more.
        """
        try:
            step = next(flow)
            while True:
                assert not isinstance(step, Block)
                answers = queue._sender.exchange(step)
                for operation, answer in zip(step, answers, strict=True):
                    self._note(queue, operation.name, answer)
                step = flow.send(answers)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _note(self, queue: Queue, what: str, answer: object) -> None:
        if not isinstance(answer, SchedqError) or isinstance(answer, (Conflict, QueueFull)):
            return
        if isinstance(answer, StoreUnavailable):
            (pong,) = queue._sender.exchange([plain("PING")])
            if isinstance(pong, StoreUnavailable):
                raise answer
        self._refused.add(what)


def _greet() -> Flow[None]:
    """Make sure that the server can be asked at all.

    Raises:
        SchedqError: it can't.
    """
    (answer,) = yield [plain("PING")]
    # A user who may not PING was let in.
    if isinstance(answer, SchedqError) and "permission" not in str(answer):
        raise answer


@contextmanager
def _visited(name: str, redis: object) -> Iterator[Queue]:
    with Queue.visiting(name, redis=redis, retry_for=_RETRY_S, allow_eviction=True) as queue:
        yield queue


def _unreachable(error: SchedqError) -> Finding:
    return Finding(
        "redis-unavailable",
        "error",
        str(error),
        "nothing can be enqueued or run until it answers; workers try again by themselves",
        "see that the server runs, and that this address and port lead to it",
    )


def _refused(error: SchedqError) -> Finding:
    return Finding(
        "redis-refuses",
        "error",
        str(error),
        "schedq can't be used there as it is",
        "change what the message names",
    )


def _not_permitted(refused: Sequence[str]) -> Finding:
    return Finding(
        "not-permitted",
        "note",
        f"the Redis user may not use {', '.join(refused)}",
        "what these would have shown was not looked at",
        "examine it as a user who may do everything to see it; schedq doctor --acl prints what the roles may do",
    )
