"""The examination: runs the checks of every subject on each server and queue, and collects the findings."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Final, TypeVar

from schedq.doctor import (
    batches,
    cluster,
    gates,
    keys,
    misplaced,
    probes,
    queue_names,
    runs,
    schedules,
    server,
    workers,
)
from schedq.doctor.checks import LEVELS, Check, Finding, findings, first_of, grouped, known, plain
from schedq.doctor.key_pages import KeyPages
from schedq.embedded.paths import SCHEME
from schedq.errors import Conflict, QueueFull, SchedqError, StoreUnavailable, UsageError
from schedq.model.lifecycle import DELAYED
from schedq.model.settings import NO_QUEUE, RETRY_S, Settings
from schedq.model.times import monotonic, sleep
from schedq.queue.queue import Queue
from schedq.transitions import MarkerWait, Pipeline, RoundTrips, pairs

T = TypeVar("T")
Moved = Callable[[int, int], None]
Steps = Generator[Pipeline | MarkerWait | float, Any, T]
"""`RoundTrips` that may also yield seconds, after which they are sent None."""
SAMPLE: Final = 2_000
"""Default number of entries read of each list of a queue; this takes less than a second."""
_MORE: Final = "; --sample N reads more"
_AGAIN_S: Final = 0.3
_MOST_SUSPECTS: Final = 200
_HANDOVER_S: Final = 2.0
_POLL_S: Final = 0.1
_AT_ONCE: Final = 100
"""Number of queues whose requests share round trips."""
_REQUESTS: Final = 100
"""The most requests in one round trip, which blocks all other clients."""
UNREACHABLE: Final[Check[object]] = Check(
    "redis-unavailable",
    "error",
    lambda error: isinstance(error, StoreUnavailable),
    str,
    "nothing can be enqueued or run until it responds; workers retry automatically",
    "check that the server is running, and that this address and port lead to it",
)
REFUSES: Final[Check[object]] = Check(
    "redis-refuses",
    "error",
    lambda error: isinstance(error, SchedqError),
    str,
    "schedq can't use this server as configured",
    "fix what the message names",
)
NOT_PERMITTED: Final[Check[set[str]]] = Check(
    "not-permitted",
    "note",
    bool,
    lambda refused: f"the Redis user may not use {', '.join(sorted(refused))}",
    "checks that need these commands were skipped",
    "to run all checks, connect as a user with full access; schedq doctor --acl prints the commands of each role",
)


@dataclass(slots=True)
class Report:
    """The result of an examination.

    Attributes:
        redis: address of Redis, without a password.
        findings: worst first.
        queues: names of the examined queues.
        server: a few facts about the server; of a cluster, about the first node.
        limits: what was not examined, in words.
    """

    redis: str
    findings: list[Finding] = field(default_factory=list)
    queues: list[str] = field(default_factory=list)
    server: dict[str, Any] = field(default_factory=dict)
    limits: list[str] = field(default_factory=list)

    def wanting(self, ignored: Sequence[str] = ()) -> list[Finding]:
        """The findings to act on: errors and warnings whose codes are not ignored."""
        return [finding for finding in self.findings if finding.level != "note" and finding.code not in ignored]

    def to_dict(self, ignored: Sequence[str] = ()) -> dict[str, Any]:
        """Return the report as one dict."""
        return {"redis": self.redis, "is_healthy": not self.wanting(ignored), **asdict(self), "ignored": [*ignored]}


def _tell_nobody(_done: int, _of: int) -> None:
    pass


def examine(
    redis: object = None,
    chosen: Sequence[str] = (),
    *,
    sample: int = SAMPLE,
    writes: bool = True,
    moved: Moved = _tell_nobody,
) -> Report:
    """Examine the server and the named queues, or all queues found there.

    Args:
        redis: as in `Queue`.
        chosen: names of queues; empty for all.
        sample: number of entries to read of each list.
        writes: try what schedq relies on with keys of its own; else only read.
        moved: called with the numbers of queues that have been examined, and of all.

    Raises:
        UsageError: the URL or a name is invalid. An error of the server becomes a finding instead.
    """
    with _queue(chosen[0] if chosen else NO_QUEUE, redis) as queue:
        examination = _Examination(queue.address.label, redis, sample, writes=writes)
        report = examination.report
        try:
            examination.run(queue, chosen, moved)
        except (StoreUnavailable, UsageError) as error:
            report.findings.append((UNREACHABLE if isinstance(error, StoreUnavailable) else REFUSES).finding(error))
    report.findings += findings([NOT_PERMITTED], examination.refused)
    report.findings.sort(key=lambda finding: (LEVELS.index(finding.level), finding.queue, finding.code))
    return report


class _Examination:
    """One examination: its report, and the commands that the server refused."""

    def __init__(self, label: str, redis: object, sample: int, *, writes: bool) -> None:
        self.report = Report(label)
        self.refused: set[str] = set()
        self._redis = redis
        self._sample = sample
        self._writes = writes
        self._servers: set[str] = set()

    def run(self, queue: Queue, chosen: Sequence[str], moved: Moved) -> None:
        """Examine the server, and then the queues side by side; on a cluster, where they have nodes, one by one."""
        self._ask(queue, _greet())
        readings = self._ask(queue, probes.read_clocks())
        self._server(queue)
        names = chosen or self._names(queue)
        patience = _Patience(len(names))
        parts = [_QueueExamination(queue.settings.of_queue(name), self._sample, patience) for name in names]
        try:
            if queue.settings.tagged:
                for number, one in enumerate(parts, 1):
                    with _queue(one.queue.name, self._redis) as visited:
                        self._server(visited)
                        self._together(visited, [one])
                    moved(number, len(parts))
            else:
                self._together(queue, parts, moved)
        finally:
            for one in parts:
                self._add(one.findings)
                self.report.limits += one.limits
                self.report.queues += [one.queue.name] * one.has_begun
        self._add(probes.check_clocks(readings + self._ask(queue, probes.read_clocks())))

    def _names(self, queue: Queue) -> list[str]:
        most, tagged = 10 * self._sample, queue.settings.tagged
        found = self._ask(queue, queue_names.read_queue_names(most, tagged=tagged))
        self._add(queue_names.check_queue_names(found))
        if tagged:
            limit = "queues that only other programs use were searched for on only one node of the cluster"
            self.report.limits.append(limit)
        if not found.is_whole:
            self.report.limits.append(f"only {most:,} keys were searched for names of queues{_MORE}")
        listed: list[str] = []
        try:
            listed = queue.list_queues()
            names = sorted({*listed, *found.usable})
            if tagged:
                prefixes = [queue.settings.of_queue(name).keys.prefix for name in names]
                self._add(cluster.check_spread(queue.address.spread(prefixes)))
        except SchedqError as error:
            self._add([REFUSES.finding(error)])
        return sorted({*listed, *found.usable})

    def _server(self, queue: Queue) -> None:
        """Examine the server that holds a queue, once per server: a cluster has several."""
        found = self._ask(queue, server.read_server(is_embedded=self.report.redis.startswith(SCHEME)))
        run_id = found.info.get("run_id", "")  # unique per server and start
        if run_id in self._servers:
            return
        self._servers.add(run_id)
        self._add(server.check_server(found))
        self._add(cluster.check_events(found))
        speed = self._ask(queue, probes.read_latency(queue.settings))
        self._add(findings(probes.SPEED, speed))
        if self._writes:
            self._add(probes.check_conformance(self._ask(queue, probes.read_conformance(queue.settings))))
        self.report.server = self.report.server or found.summary() | speed.summary()

    def _add(self, found: Iterable[Finding]) -> None:
        self.report.findings += found

    def _together(self, queue: Queue, parts: Sequence[_QueueExamination], moved: Moved = _tell_nobody) -> None:
        """Examine queues of one server side by side: each round trip has the next requests of many queues."""
        waiting, done = iter(parts), 0
        execute = partial(self._execute, queue)
        if len(parts) > 1:
            execute = partial(KeyPages().execute, execute=execute)
        awake: list[tuple[Steps[None], Any]] = []
        asleep: list[tuple[float, int, Steps[None]]] = []  # a heap
        while True:
            now = monotonic()
            while asleep and asleep[0][0] <= now:
                awake.append((heappop(asleep)[-1], None))
            awake += [(one.steps(), None) for one in islice(waiting, max(0, _AT_ONCE - len(awake)))]
            if not awake and not asleep:
                return
            asked: list[tuple[Steps[None], Pipeline]] = []
            for steps, replies in awake:
                try:
                    step = steps.send(replies)
                except StopIteration:
                    done += 1
                    continue
                assert not isinstance(step, MarkerWait)
                if isinstance(step, int | float):
                    heappush(asleep, (now + step, id(steps), steps))
                else:
                    asked.append((steps, step))
            moved(done, len(parts))
            if not asked and asleep:
                sleep(max(0.0, asleep[0][0] - monotonic()))
            together = [operation for _, operations in asked for operation in operations]
            found = iter(execute(together))
            awake = [(steps, [*islice(found, len(operations))]) for steps, operations in asked]

    def _ask(self, queue: Queue, trips: RoundTrips[T]) -> T:
        """Run round trips; commands that the server refuses are recorded, and the round trips continue without them.

        Raises:
            StoreUnavailable: the server no longer responds.
        """
        try:
            operations = next(trips)
            while True:
                assert not isinstance(operations, MarkerWait)
                operations = trips.send(self._execute(queue, operations))
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _execute(self, queue: Queue, operations: Pipeline) -> list[Any]:
        found: list[Any] = []
        for first in range(0, len(operations), _REQUESTS):
            some = operations[first : first + _REQUESTS]
            replies = queue._client.execute(some)
            for operation, reply in zip(some, replies, strict=True):
                if isinstance(reply, SchedqError):
                    self._note_refusal(queue, operation.name, reply)
            found += replies
        return found

    def _note_refusal(self, queue: Queue, command: str, reply: SchedqError) -> None:
        if isinstance(reply, (Conflict, QueueFull)):
            return
        if isinstance(reply, StoreUnavailable):
            (pong,) = queue._client.execute([plain("PING")])
            if isinstance(pong, StoreUnavailable):
                raise reply
        self.refused.add(command)


class _Patience:
    """For how long queues without a promoter are looked at again: all of them share 2 s, from the first one on."""

    def __init__(self, queues: int) -> None:
        self.poll_s = _POLL_S * min(queues, 10)  # of many queues, to return early matters less than the requests
        self._until: float | None = None

    def __bool__(self) -> bool:
        now = monotonic()
        self._until = now + _HANDOVER_S if self._until is None else self._until
        return now < self._until


class _QueueExamination:
    """The examination of one queue.

    Attributes:
        queue: its settings; those that are stored, once they have been read.
        findings: what was found.
        limits: what was not examined, in words.
        has_begun: whether anything was read.
    """

    def __init__(self, queue: Settings, sample: int, patience: _Patience) -> None:
        self.queue = queue
        self.findings: list[Finding] = []
        self.limits: list[str] = []
        self.has_begun = False
        self._sample = sample
        self._patience = patience

    def steps(self) -> Steps[None]:
        """Examine it. Yields the operations of a round trip, or seconds to wait."""
        self.has_begun = True
        yield from self._examine()
        if self.queue.tagged:
            self.findings = [finding.tagged(self.queue.keys.prefix) for finding in self.findings]

    def _examine(self) -> Steps[None]:
        (stored,) = yield [plain("HGETALL", self.queue.keys.settings)]
        if known(stored, []):  # other checks report what is wrong with the key
            self.queue = self.queue.with_fields(pairs(stored))
        queue, name, names = self.queue, self.queue.name, self.queue.keys
        alive = yield from self._alive()
        limits = yield from gates.read_gates(queue)
        tasks = {task for worker in alive.records for task in worker.tasks}
        wrong = yield from keys.read_types(names, tasks, gates.names_of(limits))
        self._add(keys.WRONG_TYPE.finding(each, name) for each in wrong)
        now_ms = alive.now_ms
        self._add(findings(workers.LIVENESS, alive, name))
        unknown = yield from workers.read_unknown_tasks(queue)
        self._add(workers.UNKNOWN_TASK.finding((task, now_ms), name) for task in unknown)
        self._add(findings(workers.OUTBOX, (yield from workers.read_outboxes(queue, now_ms)), name))
        self._add(gates.check_gates(limits, name))
        due = yield from keys.read_due_times(names, now_ms, is_promoted=alive.has_promoter)
        self._add(findings(keys.DUE_TIMES, due, name))
        self._add(findings([probes.WENT_BACK], (yield from probes.read_ahead_ms(names.log)), name))
        self._add(keys.check_histories((yield from keys.read_histories(queue, now_ms)), name))
        self._add(workers.check_settings((yield from workers.read_settings_in_use(queue, now_ms)), name))
        yield from self._schedules(alive)
        yield from self._batches(alive)
        delayed = yield from self._misplaced(is_promoted=alive.has_promoter)
        yield from self._runs(now_ms, delayed)

    def _alive(self) -> Steps[workers.Liveness]:
        """Read the workers and the promoter. If there is no promoter, poll until another had time to take over."""
        found = yield from workers.read_liveness(self.queue)
        while not found.has_promoter and not found.is_deserted and self._patience:
            yield self._patience.poll_s
            found = yield from workers.read_liveness(self.queue)
        return found

    def _schedules(self, alive: workers.Liveness) -> Steps[None]:
        names = self.queue.keys
        found = yield from schedules.read_schedules(names, alive, self._sample)
        odd = yield from _odd_twice(
            schedules.SCHEDULES, found.schedules, lambda ids: schedules.read_facts(names, alive, ids)
        )
        odd.sort(key=lambda it: it.slot_ms or 0)
        self._add(grouped(schedules.SCHEDULES, odd, self.queue.name))
        self._limit(schedules.limits(found))

    def _batches(self, alive: workers.Liveness) -> Steps[None]:
        names = self.queue.keys
        found = yield from batches.read_batches(names, self._sample)
        facts = yield from batches.read_facts(names, alive, found.names)
        odd = yield from _odd_twice(batches.BATCHES, facts, lambda ids: batches.read_facts(names, alive, ids))
        self._add(grouped(batches.BATCHES, odd, self.queue.name))
        self._limit(batches.limits(found, self._sample))

    def _runs(self, now_ms: int, delayed: Sequence[str]) -> Steps[None]:
        names = self.queue.keys
        suspended, undos = yield from runs.read_listed(names, delayed)
        facts = yield from runs.read_facts(names, now_ms, suspended)
        odd = yield from _odd_twice(runs.RUNS, facts, lambda ids: runs.read_facts(names, now_ms, ids))
        self._add(grouped(runs.RUNS, odd, self.queue.name))
        self._add(grouped(runs.LEFT, (yield from runs.read_left(names, undos)), self.queue.name))

    def _misplaced(self, *, is_promoted: bool) -> Steps[list[str]]:
        """Examine lists against records; returns the ids of the delayed jobs that were read."""
        names = self.queue.keys
        found = yield from misplaced.read_queue(names, self._sample)

        def look(ids: list[str]) -> RoundTrips[list[misplaced.JobLocations]]:
            return misplaced.read_locations(names, ids, found.lengths, is_promoted=is_promoted)

        suspects, unjudged = misplaced.suspects(found)
        jobs = yield from _odd_twice(misplaced.MISPLACED, (yield from look(suspects[:_MOST_SUSPECTS])), look)
        self._add(grouped(misplaced.MISPLACED, jobs, self.queue.name, at_least=len(suspects) > _MOST_SUSPECTS))
        self._limit(misplaced.limits(found, unjudged))
        return found.ids[DELAYED]

    def _add(self, found: Iterable[Finding]) -> None:
        self.findings += found

    def _limit(self, limits: Iterable[str]) -> None:
        self.limits += [f"queue {self.queue.name}: {words}{_MORE}" for words in limits]


def _odd_twice(
    checks: Sequence[Check[Any]], things: Sequence[Any], look: Callable[[list[str]], RoundTrips[list[Any]]]
) -> Steps[list[Any]]:
    """Keep the things that the same row finds odd when they are read again a moment later.

    This drops jobs that another client is just moving, and problems that schedq itself repairs within a moment.
    """
    kinds = {thing.id: kind for thing in things if (kind := first_of(checks, thing))}
    if not kinds:
        return []
    yield float(_AGAIN_S)
    again = yield from look(list(kinds))
    return [thing for thing in again if first_of(checks, thing) is kinds[thing.id]]


def _greet() -> RoundTrips[None]:
    """Check that the server responds.

    Raises:
        SchedqError: it does not.
    """
    (reply,) = yield [plain("PING")]
    # A user without permission to PING is connected nevertheless.
    if isinstance(reply, SchedqError) and "permission" not in str(reply):
        raise reply


def _queue(name: str, redis: object) -> Queue:
    return Queue.for_operator(name, redis=redis, retry_for=RETRY_S, allow_eviction=True)
