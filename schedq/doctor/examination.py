"""The examination: runs the checks of every subject on each server and queue, and collects the findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from schedq.doctor import batches, gates, keys, misplaced, probes, queue_names, runs, schedules, server, workers
from schedq.doctor.checks import LEVELS, Check, Finding, findings, first_of, grouped, plain
from schedq.embedded.paths import SCHEME
from schedq.errors import Conflict, QueueFull, SchedqError, StoreUnavailable, UsageError
from schedq.model.lifecycle import DELAYED
from schedq.model.settings import NO_QUEUE, RETRY_S
from schedq.model.times import sleep
from schedq.queue.queue import Queue
from schedq.transitions import MarkerWait, RoundTrips

T = TypeVar("T")
SAMPLE: Final = 2_000
"""Default number of entries read of each list of a queue; this takes less than a second."""
_MORE: Final = "; --sample N reads more"
_AGAIN_S: Final = 0.3
_MOST_SUSPECTS: Final = 200
_HANDOVER_S: Final = 2.0
_POLL_S: Final = 0.1
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


def examine(redis: object = None, chosen: Sequence[str] = (), *, sample: int = SAMPLE) -> Report:
    """Examine the server and the named queues, or all queues found there.

    Args:
        redis: as in `Queue`.
        chosen: names of queues; empty for all.
        sample: number of entries to read of each list.

    Raises:
        UsageError: the URL or a name is invalid. An error of the server becomes a finding instead.
    """
    with _queue(chosen[0] if chosen else NO_QUEUE, redis) as queue:
        examination = _Examination(queue.address.label, redis, sample)
        report = examination.report
        try:
            examination.run(queue, chosen)
        except (StoreUnavailable, UsageError) as error:
            report.findings.append((UNREACHABLE if isinstance(error, StoreUnavailable) else REFUSES).finding(error))
    report.findings += findings([NOT_PERMITTED], examination.refused)
    report.findings.sort(key=lambda finding: (LEVELS.index(finding.level), finding.queue, finding.code))
    return report


class _Examination:
    """One examination: its report, and the commands that the server refused."""

    def __init__(self, label: str, redis: object, sample: int) -> None:
        self.report = Report(label)
        self.refused: set[str] = set()
        self._redis = redis
        self._sample = sample
        self._servers: set[str] = set()
        self._patience_s = _HANDOVER_S

    def run(self, queue: Queue, chosen: Sequence[str]) -> None:
        self._ask(queue, _greet())
        readings = self._ask(queue, probes.read_clocks())
        self._server(queue)
        for name in chosen or self._names(queue):
            with _queue(name, self._redis) as visited:
                self._server(visited)
                self.report.queues.append(name)
                before = len(self.report.findings)
                self._examine(visited)
                if visited.settings.tagged:
                    found, prefix = self.report.findings, visited.settings.keys.prefix
                    found[before:] = [finding.tagged(prefix) for finding in found[before:]]
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
        try:
            listed = queue.list_queues()
        except SchedqError as error:
            self._add([REFUSES.finding(error)])
            listed = []
        return sorted({*listed, *found.usable})

    def _server(self, queue: Queue) -> None:
        """Examine the server that holds a queue, once per server: a cluster has several."""
        found = self._ask(queue, server.read_server(is_embedded=self.report.redis.startswith(SCHEME)))
        run_id = found.info.get("run_id", "")  # unique per server and start
        if run_id in self._servers:
            return
        self._servers.add(run_id)
        self._add(server.check_server(found))
        speed = self._ask(queue, probes.read_latency(queue.settings))
        self._add(findings(probes.SPEED, speed))
        self._add(probes.check_conformance(self._ask(queue, probes.read_conformance(queue.settings))))
        self.report.server = self.report.server or found.summary() | speed.summary()

    def _examine(self, queue: Queue) -> None:
        name, names = queue.name, queue.settings.keys
        with suppress(SchedqError):  # other checks report what is wrong with the key
            queue.load_settings()
        alive = self._alive(queue)
        limits = self._ask(queue, gates.read_gates(queue.settings))
        tasks = {task for worker in alive.records for task in worker.tasks}
        types = keys.read_types(names, tasks, gates.names_of(limits))
        self._add(keys.WRONG_TYPE.finding(wrong, name) for wrong in self._ask(queue, types))
        now_ms = alive.now_ms
        self._add(findings(workers.LIVENESS, alive, name))
        unknown = self._ask(queue, workers.read_unknown_tasks(queue.settings))
        self._add(workers.UNKNOWN_TASK.finding((task, now_ms), name) for task in unknown)
        self._add(findings(workers.OUTBOX, self._ask(queue, workers.read_outboxes(queue.settings, now_ms)), name))
        self._add(gates.check_gates(limits, name))
        due = self._ask(queue, keys.read_due_times(names, now_ms, is_promoted=alive.has_promoter))
        self._add(findings(keys.DUE_TIMES, due, name))
        self._add(findings([probes.WENT_BACK], self._ask(queue, probes.read_ahead_ms(names.log)), name))
        self._add(keys.check_histories(self._ask(queue, keys.read_histories(queue.settings, now_ms)), name))
        in_use = self._ask(queue, workers.read_settings_in_use(queue.settings, now_ms))
        self._add(workers.check_settings(in_use, name))
        self._schedules(queue, alive)
        self._batches(queue, alive)
        self._runs(queue, now_ms, self._misplaced(queue, is_promoted=alive.has_promoter))

    def _alive(self, queue: Queue) -> workers.Liveness:
        """Read the workers and the promoter. If there is no promoter, poll until another had time to take over.

        All queues share that waiting time.
        """
        found = self._ask(queue, workers.read_liveness(queue.settings))
        while not found.has_promoter and not found.is_deserted and self._patience_s > 0:
            sleep(_POLL_S)
            self._patience_s -= _POLL_S
            found = self._ask(queue, workers.read_liveness(queue.settings))
        return found

    def _schedules(self, queue: Queue, alive: workers.Liveness) -> None:
        names = queue.settings.keys
        found = self._ask(queue, schedules.read_schedules(names, alive, self._sample))

        def look(ids: list[str]) -> list[schedules.ScheduleFacts]:
            return self._ask(queue, schedules.read_facts(names, alive, ids))

        odd = _odd_twice(schedules.SCHEDULES, found.schedules, look)
        odd.sort(key=lambda it: it.slot_ms or 0)
        self._add(grouped(schedules.SCHEDULES, odd, queue.name))
        self._limit(queue, schedules.limits(found))

    def _batches(self, queue: Queue, alive: workers.Liveness) -> None:
        names = queue.settings.keys
        found = self._ask(queue, batches.read_batches(names, self._sample))

        def look(ids: Sequence[str]) -> list[batches.BatchFacts]:
            return self._ask(queue, batches.read_facts(names, alive, ids))

        odd = _odd_twice(batches.BATCHES, look(found.names), look)
        self._add(grouped(batches.BATCHES, odd, queue.name))
        self._limit(queue, batches.limits(found, self._sample))

    def _runs(self, queue: Queue, now_ms: int, delayed: Sequence[str]) -> None:
        names = queue.settings.keys

        def look(ids: Sequence[str]) -> list[runs.RunFacts]:
            return self._ask(queue, runs.read_facts(names, now_ms, ids))

        odd = _odd_twice(runs.RUNS, look(self._ask(queue, runs.read_suspended(names, delayed))), look)
        self._add(grouped(runs.RUNS, odd, queue.name))

    def _misplaced(self, queue: Queue, *, is_promoted: bool) -> list[str]:
        """Examine lists against records; returns the ids of the delayed jobs that were read."""

        def look(ids: list[str]) -> list[misplaced.JobLocations]:
            names = queue.settings.keys
            return self._ask(queue, misplaced.read_locations(names, ids, found.lengths, is_promoted=is_promoted))

        found = self._ask(queue, misplaced.read_queue(queue.settings.keys, self._sample))
        suspects, unjudged = misplaced.suspects(found)
        jobs = _odd_twice(misplaced.MISPLACED, look(suspects[:_MOST_SUSPECTS]), look)
        self._add(grouped(misplaced.MISPLACED, jobs, queue.name, at_least=len(suspects) > _MOST_SUSPECTS))
        self._limit(queue, misplaced.limits(found, unjudged))
        return found.ids[DELAYED]

    def _add(self, found: Iterable[Finding]) -> None:
        self.report.findings += found

    def _limit(self, queue: Queue, limits: Iterable[str]) -> None:
        self.report.limits += [f"queue {queue.name}: {words}{_MORE}" for words in limits]

    def _ask(self, queue: Queue, trips: RoundTrips[T]) -> T:
        """Run round trips; commands that the server refuses are recorded, and the round trips continue without them.

        Raises:
            StoreUnavailable: the server no longer responds.
        """
        try:
            operations = next(trips)
            while True:
                assert not isinstance(operations, MarkerWait)
                replies = queue._client.execute(operations)
                for operation, reply in zip(operations, replies, strict=True):
                    self._note_refusal(queue, operation.name, reply)
                operations = trips.send(replies)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _note_refusal(self, queue: Queue, command: str, reply: object) -> None:
        if not isinstance(reply, SchedqError) or isinstance(reply, (Conflict, QueueFull)):
            return
        if isinstance(reply, StoreUnavailable):
            (pong,) = queue._client.execute([plain("PING")])
            if isinstance(pong, StoreUnavailable):
                raise reply
        self.refused.add(command)


def _odd_twice(
    checks: Sequence[Check[Any]], things: Sequence[Any], look: Callable[[list[str]], list[Any]]
) -> list[Any]:
    """Keep the things that the same row finds odd when they are read again a moment later.

    This drops jobs that another client is just moving, and problems that schedq itself repairs within a moment.
    """
    kinds = {thing.id: kind for thing in things if (kind := first_of(checks, thing))}
    if not kinds:
        return []
    sleep(_AGAIN_S)
    return [thing for thing in look(list(kinds)) if first_of(checks, thing) is kinds[thing.id]]


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
