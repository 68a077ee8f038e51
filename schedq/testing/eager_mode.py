"""Tests without any server: a job runs when it is enqueued, in the thread that enqueues it."""

from __future__ import annotations

import asyncio
import contextvars
import json
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar

from schedq.connection.address import Address
from schedq.connection.async_client import AsyncClient
from schedq.connection.client import Client
from schedq.connection.endpoint import Endpoint
from schedq.errors import SchedqError, UsageError
from schedq.model.lifecycle import COMPLETED, DELAYED, FAILED, FINISHED, PENDING, PROCESSING
from schedq.model.records import ClaimedJob, Settlement
from schedq.model.settings import Settings
from schedq.queue.queue import QueueBase
from schedq.testing.captured import Captured
from schedq.testing.loops import Runner, in_thread, with_runner
from schedq.testing.replacement import Replacement, replaced
from schedq.testing.runner import LocalAttempt, resources_of
from schedq.transitions import MarkerWait, Operation, Pipeline
from schedq.transitions.scripts import header

T = TypeVar("T")
_Record = dict[str, str]
_DEEPEST: Final = 50


class EagerQueues(Captured):
    """All queues of the process without a server.

    A delay is not waited for, limits hold nothing, and retries follow at once. A job that snoozes, or whose task this
    process does not have, stays where it is. What else needs Redis raises UsageError.

    Attributes:
        enqueued: the jobs that this process asked to enqueue, oldest first.
    """


@contextmanager
def eager() -> Iterator[EagerQueues]:
    """Run each job when it is enqueued, before `enqueue` returns, without a server, in this block.

    This applies to all queues of the process. A job that fails is failed, as it would be in a worker: `enqueue` raises
    nothing, and `result` raises JobFailed.
    """
    queues = EagerQueues()

    def without_server(queue: QueueBase) -> Replacement:
        jobs = _Jobs(queue)
        clients = _EagerClient(jobs, queue.settings), _AsyncEagerClient(jobs, queue.settings)
        return Replacement(_NO_SERVER, queue.settings, *clients)

    with replaced(without_server, queues.enqueued.append):
        yield queues


class _NoServer(Address):
    """The address of nothing, for code that would connect on its own, such as a worker."""

    def find(self, key: str) -> Endpoint:  # noqa: ARG002 - no server holds it
        raise _refused("a connection")

    known = find


_NO_SERVER: Final = _NoServer("redis://eager.invalid")


_PUBLIC: Final = {
    **dict.fromkeys(("fill_group", "group"), "a batch or a chain"),
    **dict.fromkeys(("step", "add_undo", "failed_try", "until", "receive", "start_over"), "a workflow"),
    "send": "job.send",
}
"""What users call requests whose own names they do not know."""


def _refused(what: str) -> UsageError:
    return UsageError(
        f"{_PUBLIC.get(what, what)} needs Redis, and eager mode has none; use the fixture schedq_tester, or "
        "schedq.testing.queue_tester(), in this test"
    )


class _Chain:
    """Jobs that run inside each other: each was enqueued by the one around it."""

    error: UsageError | None = None


_running: ContextVar[tuple[int, _Chain]] = ContextVar("schedq_eager")
"""How many jobs are running around this code, and the chain that they form."""


@contextmanager
def _deeper(job_id: str) -> Iterator[_Chain]:
    """Run one more job inside those that are running.

    Raises:
        UsageError: there are too many; each of them ends with this error.
    """
    depth, chain = _running.get((0, _Chain()))
    if depth >= _DEEPEST:
        chain.error = UsageError(
            f"job {job_id} would run inside {_DEEPEST} others that enqueued one another: eager mode waits for no "
            "delay, so a job that enqueues itself again never ends; use the fixture schedq_tester in this test"
        )
        raise chain.error
    token = _running.set((depth + 1, chain))
    try:
        yield chain
    finally:
        _running.reset(token)
    if chain.error is not None:
        raise chain.error


_ENQUEUE: Final = ("enqueue", "enqueue_unique")
"""The scripts that store new jobs; the second one those that have a gate or a unique key."""


class _Jobs:
    """The jobs of one queue in memory, each with the fields that its record has in Redis."""

    def __init__(self, queue: QueueBase) -> None:
        self._queue = queue
        self._records: dict[str, _Record] = {}
        self._tokens = 0

    def answers(self, operations: Pipeline) -> list[Any]:
        """The result of each operation, or the SchedqError that it raises."""
        return [self._answer(operation) for operation in operations]

    def is_quick(self, operations: Pipeline) -> bool:
        """Whether none of them runs a job."""
        return not any(operation.script is not None and operation.script.name in _ENQUEUE for operation in operations)

    def _answer(self, operation: Operation[Any]) -> Any:
        try:
            return operation.read(self._reply(operation))
        except SchedqError as error:
            return error

    def _reply(self, operation: Operation[Any]) -> Any:
        if operation.script is None:
            return self._read(operation)
        name, args = operation.script.name, operation.args
        named = dict(zip((each.name for each in header(name).args), args, strict=False))
        rest = args[len(header(name).args) - 1 :]
        if name in _ENQUEUE:
            return self._enqueue(rest)
        if name == "watch":
            return self._status(str(named["id"]))
        if name == "renew":
            reports = int(named["reports"])
            return ["OK"] * (reports + (len(rest) - 5 * reports) // 2)
        raise _refused(operation.name)

    def _read(self, operation: Operation[Any]) -> Any:
        command, key, *names = map(str, operation.args)
        keys = self._queue.settings.keys
        is_empty = key in (keys.stats, keys.settings)  # read to say why a job is not there
        if not (is_empty or key.startswith(keys.jobs)) or command not in ("HGETALL", "HMGET"):
            raise _refused(operation.name)
        record = {} if is_empty else self._records.get(key.removeprefix(keys.jobs), {})
        return [record.get(name) for name in names] if names else [text for pair in record.items() for text in pair]

    def _status(self, job_id: str) -> list[str]:
        record = self._records.get(job_id)
        if record is None:
            return []
        status = record["status"]
        if status not in FINISHED:
            why = {PROCESSING: "it is still running", DELAYED: "it snoozed"}.get(
                status, "this process has no task for it"
            )
            raise UsageError(f"job {job_id} will have no result in eager mode: {why}")
        return [record.get(name, "") for name in ("status", "result", "result_error", "last_error", "cancel_reason")]

    def _enqueue(self, words: tuple[str | int, ...]) -> list[str]:
        found, at = [], 0
        while at < len(words):
            job_id, payload, mode, _, count = map(str, words[at : at + 5])
            options = [str(word) for word in words[at + 5 : at + 5 + int(count)]]
            at += 5 + int(count)
            if "unique" in options[::2]:
                raise _refused("a unique job")
            word = self._conflict(job_id, payload, mode)
            if word is None:
                record = {"id": job_id, "payload": payload, "status": PENDING, "attempts": "0"}
                record |= {"enqueued_at_ms": _now(), **dict(zip(options[::2], options[1::2], strict=True))}
                self._records[job_id] = record
                _outside_of_loops(partial(self._run, job_id))
            found.append(word or "STORED")
        return found

    def _conflict(self, job_id: str, payload: str, mode: str) -> str | None:
        """The word for a job that is not stored; None if it is to be."""
        record = self._records.get(job_id)
        if record is None:
            return None
        status, if_exists = record["status"], mode.partition(":")[2].partition(":")[0]
        if if_exists == "create":
            return f"TAKEN {status}"
        if if_exists == "reuse":
            return None if status in FINISHED else f"BUSY {status}"
        return "EXISTS" if record["payload"] == payload else "CONFLICT"

    def _run(self, job_id: str) -> None:
        """Make attempts until the job has ended."""
        with _deeper(job_id) as chain:
            with_runner(partial(self._attempts, self._records[job_id], chain))

    def _attempts(self, record: _Record, chain: _Chain, runner: Runner) -> None:
        queue = self._queue.blocking
        with resources_of(queue, runner) as resources:
            while True:
                attempt = LocalAttempt(queue, self._claimed(record), runner, resources)
                settlement = attempt.settlement()
                for report in attempt.reports():
                    begin = f"{report.progress}," if report.progress else ""
                    record["progress"] = f'{{{begin}"attempt":{record["attempts"]},"at_ms":{_now()}}}'
                    record["meta"] = report.meta or record.get("meta", "")
                _end(record, settlement)
                if settlement.move != "retry" or chain.error is not None:
                    return

    def _claimed(self, record: _Record) -> ClaimedJob:
        self._tokens += 1
        now, attempts = _now(), int(record["attempts"]) + 1
        record |= {"status": PROCESSING, "attempts": str(attempts), "started_at_ms": now, "claimed_at_ms": now}
        named = ("max_attempts", "backoff", "timeout_ms", "crashes", "enqueued_at_ms", "run_at_ms", "trace")
        fields = [record.get(name, "") for name in (*named, "unknown_since_ms", "headers")]
        first = [record["id"], record["payload"], str(attempts), f"eager.{self._tokens}"]
        job = ClaimedJob.from_reply([*first, *fields], int(now))
        job.gate_key = f"{record['gate']} {record.get('key', '')}" if "gate" in record else ""
        return job


def _end(record: _Record, settlement: Settlement) -> None:
    """Store how an attempt has ended, as `settle.lua` does."""
    now, attempts, move = _now(), int(record["attempts"]), settlement.move
    if settlement.traceback:
        record["traceback"] = settlement.traceback
    if move == "complete":
        record |= {"status": COMPLETED, "completed_at_ms": now, "result": settlement.text}
        record["result_error"] = settlement.note
    elif move in ("snooze", "limit"):
        record |= {"status": PENDING if settlement.text else DELAYED, "attempts": str(attempts - 1)}
        return
    else:
        record |= {"status": FAILED if move == "fail" else DELAYED, "last_error": settlement.text}
        record["last_error_at_ms"] = now
    outcome = {"complete": "completed", "fail": "failed"}.get(move, move)
    ended = {"attempt": attempts, "worker": "", "started_at_ms": int(record["started_at_ms"])}
    line = json.dumps({**ended, "ended_at_ms": int(now), "outcome": outcome, "error": settlement.note})
    record["history"] = f"{record.get('history', '')}{line}\n"


def _now() -> str:
    return str(int(time.time() * 1000))


def _outside_of_loops(work: Callable[[], T]) -> T:
    """Call a function that runs event loops; in another thread if this one is running a loop already."""
    if asyncio._get_running_loop() is None:
        return work()
    with ThreadPoolExecutor(1, "schedq eager") as threads:
        return threads.submit(contextvars.copy_context().run, work).result()


class _EagerClient(Client):
    """Gives, from memory, the results that a blocking queue asks for."""

    def __init__(self, jobs: _Jobs, queue: Settings) -> None:
        super().__init__(_NO_SERVER, queue)
        self._jobs = jobs

    def execute(self, operations: Pipeline) -> list[Any]:
        return self._jobs.answers(operations)

    def messages(self, channel: str) -> Generator[str | None, float | None, None]:  # noqa: ARG002 - no message comes
        while True:
            yield ""

    def _block(self, block: MarkerWait) -> None:  # noqa: ARG002 - no job is waiting
        raise _refused("waiting for a job")


class _AsyncEagerClient(AsyncClient):
    """The same for an asyncio queue. Jobs run in a thread, as the event loop is in use."""

    def __init__(self, jobs: _Jobs, queue: Settings) -> None:
        super().__init__(_NO_SERVER, queue)
        self._jobs = jobs

    def connections(self) -> Any:
        self._running_loop()
        return _Nowhere()

    async def execute(self, operations: Pipeline) -> list[Any]:
        if self._jobs.is_quick(operations):
            return self._jobs.answers(operations)
        return await in_thread(self._jobs.answers, operations)


class _Nowhere:
    """In place of the connections of an event loop."""

    def __init__(self) -> None:
        self.pubsub = self

    def check(self) -> None:
        """They are never closed."""

    async def subscribe(self, channel: str, put: Callable[[str], None]) -> None:  # noqa: ARG002 - no message comes
        """Report that messages may have been missed, as after connecting."""
        put("")

    async def unsubscribe(self, channel: str, put: Callable[[str], None]) -> None:
        """Nothing was subscribed."""

    async def wait_for_wake(self, block: object) -> None:  # noqa: ARG002
        """No job is waiting."""
        raise _refused("waiting for a job")
