"""The main function of a child process, which runs one attempt after the other; see `schedq.isolation`."""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import signal
import socket
import threading
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from types import FrameType
from typing import Any, Final

from schedq.background.observers import Observers
from schedq.connection.resolver import in_thread
from schedq.dependencies.lifespan import Resources
from schedq.isolation import handed, parent_death, wire
from schedq.isolation.child_process import MARK, TIMEOUT_MARK
from schedq.isolation.wire import Assignment, Ended, Raised
from schedq.model import current_job, outcome
from schedq.model.current_job import CurrentJob
from schedq.model.outcome import described, released
from schedq.model.progress import Reporters
from schedq.model.records import Settlement
from schedq.observer import AttemptFacts, Observer
from schedq.tracing import continued
from schedq.worker import forks
from schedq.worker.application import Application, Loaded
from schedq.worker.attempt import RUNNING, TIMED_OUT, Attempt, InFlight
from schedq.worker.attempt_report import AttemptReport, JobLines
from schedq.worker.capacity import Capacity, make_order
from schedq.worker.executor import Executor
from schedq.worker.stuck import StuckSlots
from schedq.worker.threads import ThreadPool
from schedq.worker.worker_context import WorkerContext

_REPORT_S: Final = 0.25
_LEAVE_S: Final = 30.0
"""Seconds for leaving the lifespans; the worker kills a child that takes longer than its own limit."""


def main(application: Application, connection: socket.socket, life_fd: int, stack_fd: int) -> None:
    """Run attempts until the worker says `exit`, sends SIGTERM, or is gone."""
    parent_death.end_with(life_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the worker decides what it means
    line = Line(connection)
    try:
        if application.prepare is not None:
            application.prepare()
        loaded = Loaded(*application.load())
    except BaseException as error:  # noqa: BLE001 - the worker logs it
        line.send({"kind": "unusable", "reason": f"the application can't be imported: {described(error)}"})
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
    child = Child(loaded, line, application.worker, stack_fd)
    signal.signal(signal.SIGTERM, child.terminate)
    faulthandler.enable(stack_fd, all_threads=False)
    faulthandler.register(signal.SIGTERM, stack_fd, all_threads=False, chain=True)
    child.run()


class Line:
    """The connection to the worker. Any thread may send."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; nothing happens if the worker is gone, because then this process ends too."""
        with self._lock, suppress(OSError):
            self.connection.sendall(wire.packed(message))


class MainThread(ThreadPool):
    """A pool of one thread, which is the main thread: only there does Python call signal handlers."""

    def __init__(self) -> None:
        super().__init__(1)
        self._started = 1

    def serve(self) -> None:
        """Run functions until the pool is closed."""
        self._run()


class ChildReport(AttemptReport):
    """Keeps what an attempt raised, for the worker, which reports attempts to observers and to the log."""

    def __init__(self, observers: Observers) -> None:
        super().__init__(JobLines("", is_silent=True), observers)
        self.raised: Raised | None = None

    def started(self, attempt: Attempt) -> None:
        """Forget the attempt before."""
        super().started(attempt)
        self.raised = None

    def finished(self, attempt: Attempt, raised: BaseException | None) -> None:  # noqa: ARG002 - as its base
        """Keep the exception's class and text."""
        if raised is not None:
            self.raised = Raised.of(raised)

    def failed(self, attempt: Attempt, settlement: Settlement, raised: BaseException | None) -> None:
        """Log nothing."""


class TraceContext(Observer):
    """Makes the worker's span the current one in functions.

    Attributes:
        text: its context, as a job's `trace`; or ''.
    """

    text = ""

    def around(self, attempt: AttemptFacts) -> AbstractContextManager[object] | None:  # noqa: ARG002 - as its base
        """Enter the worker's span."""
        return continued(self.text) if self.text else None


class Child:
    """Runs attempts: their functions in the main thread, everything else on an event loop in a second thread."""

    def __init__(self, loaded: Loaded, line: Line, worker: str, stack_fd: int) -> None:
        self._stack_fd = stack_fd
        self._queues = {queue.name: queue for queue in loaded.queues}
        self._middleware = tuple(loaded.middleware)
        self._imported = loaded.imported
        self._line = line
        self._worker = worker
        self._main = MainThread()
        self._reporters = Reporters()
        self._trace = TraceContext()
        self._report: ChildReport
        self._sending = threading.Lock()
        self._executors: dict[str, Executor] = {}
        self._in_flight: InFlight
        self._attempt: Attempt | None = None
        self._is_terminated = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._leaving: asyncio.Event
        self._left = threading.Event()
        self._code = 0

    def run(self) -> None:
        """Run attempts; ends this process."""
        for name, function in (("schedq-loop", self._on_loop), ("schedq-reports", self._report_progress)):
            threading.Thread(target=function, name=name, daemon=True).start()
        with suppress(TimeoutError):  # SIGTERM between two functions
            self._main.serve()
        self._left.wait()
        os._exit(self._code)

    def terminate(self, _signal: int, _frame: FrameType | None) -> None:
        """Raise TimeoutError in the function, which may clean up until it is killed; ignore others' signals."""
        mark = os.pread(self._stack_fd, len(MARK), 0)
        if mark not in (MARK, TIMEOUT_MARK):
            os.ftruncate(self._stack_fd, 0)
            os.lseek(self._stack_fd, 0, os.SEEK_SET)
            return
        self._is_terminated = True
        attempt = self._attempt
        if attempt is not None and mark == MARK:
            attempt.limit_s = None  # it is cancelled or released, and no text may say that it timed out
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_after_timeout)
        if attempt is not None and attempt.thread_id == threading.get_ident():
            raise attempt.timeout_error()

    def _stop_after_timeout(self) -> None:
        attempt = self._attempt
        if attempt is None:
            self._leaving.set()
        elif attempt.state is RUNNING:
            attempt.become(TIMED_OUT)
            if attempt.thread_id is None:
                attempt.interrupt()

    def _on_loop(self) -> None:
        try:
            with forks.guarded():
                asyncio.run(self._work())
        except BaseException as error:  # noqa: BLE001 - the worker logs it
            self._line.send({"kind": "unusable", "reason": described(error)})
            self._code = 1
        finally:
            self._left.set()
            self._main.close()

    async def _work(self) -> None:
        self._loop, self._leaving = asyncio.get_running_loop(), asyncio.Event()
        lifespans = [queue.lifespan for queue in self._queues.values() if queue.lifespan is not None]
        resources = Resources(lifespans, in_thread)
        await resources.start()
        try:
            self._prepare(resources)
            threading.Thread(target=self._receive, name="schedq-messages", daemon=True).start()
            self._line.send({"kind": "ready"})
            await self._leaving.wait()
        finally:
            await resources.close(_LEAVE_S)
            for queue in self._queues.values():
                await queue.aio.aclose()

    def _prepare(self, resources: Resources) -> None:
        observers = Observers([self._trace])
        self._report = ChildReport(observers)
        context = WorkerContext(
            worker_id=self._worker,
            capacity=Capacity(1, make_order("strict", [1])),
            threads=self._main,
            observers=observers,
            background_observers=observers,
            promotes=False,
            stop=lambda: None,
            answered=lambda: None,
            stuck=StuckSlots(self._worker, 1, float("inf")),
            siblings=None,
            lines=JobLines("", is_silent=True),
            report=self._report,
            resources=resources,
            middleware=self._middleware,
            processes=None,
            isolates_all=False,
            measures_timeouts=False,
        )
        for name, queue in self._queues.items():
            queue.registry.runner, queue.registry.imported = "a child process of this worker", self._imported
            queue.registry.start()
            self._executors[name] = Executor(queue, context, self._reporters, _nothing, self._stopped)

    def _receive(self) -> None:
        """Pass messages to the loop, in a thread. At the end of the connection the worker is gone."""
        assert self._loop is not None
        try:
            while (message := wire.receive(self._line.connection)) is not None:
                self._loop.call_soon_threadsafe(self._take, message)
        finally:
            os._exit(1)

    def _take(self, message: wire.Message) -> None:
        kind, attempt = message["kind"], self._attempt
        if kind in ("run", "hand"):
            call = Assignment.of(message)
            self._trace.text = call.trace
            self._attempt = attempt = Attempt(call.job, call.queue, call.worker)
            executor = self._executors[call.queue]
            self._in_flight = InFlight(executor.interrupt, self._reporters)
            self._in_flight.add(attempt)
            work = executor.run(attempt) if kind == "run" else self._run_handed(attempt, message)
            assert self._loop is not None
            self._in_flight.start(attempt, self._loop.create_task(work))
        elif kind == "exit":
            self._leaving.set()
        elif attempt is not None and kind == "stop":
            self._in_flight.request_stop(attempt)
        elif attempt is not None and kind == "release":
            self._in_flight.release()

    async def _run_handed(self, attempt: Attempt, message: wire.Message) -> None:
        """Run a function that an async handler of the worker has handed over."""
        queue = self._queues[attempt.queue]
        attempt.become(RUNNING)
        attempt.name = message["task"]
        attempt.current = CurrentJob(
            attempt.job,
            deadline=message["deadline"],
            renew=queue.blocking.renew,
            arenew=queue.aio.renew,
            queue=attempt.queue,
            task=attempt.name,
            worker=attempt.worker,
            reporters=self._reporters,
        )
        ended: wire.Message = {}
        try:
            ended = await self._main.run_to_end(asyncio.get_running_loop(), partial(self._handed, attempt, message))
        finally:
            self._answer(attempt, ended)

    def _handed(self, attempt: Attempt, message: wire.Message) -> wire.Message:
        """Call such a function, in the main thread."""
        assert attempt.current is not None
        attempt.thread_id = threading.get_ident()
        current_job.context.set(attempt.current)
        try:
            with continued(self._trace.text) if self._trace.text else nullcontext():
                return handed.returned(handed.function_of(message["function"])())
        except BaseException as error:  # noqa: BLE001 - the handler gets whatever the function raises
            return handed.raised(error, Raised.of(error), outcome.log_traceback(error))
        finally:
            attempt.thread_id = None

    def _stopped(self, attempt: Attempt) -> None:
        """Send the outcome of an attempt."""
        self._answer(attempt, Ended(attempt.settlement or released(attempt.job), self._report.raised).message())

    def _answer(self, attempt: Attempt, message: wire.Message) -> None:
        """Send how an attempt has ended: nothing of it is running any more."""
        self._send_reports()
        self._reporters.forget(attempt.job.claim_token)
        self._attempt = None
        if not self._is_terminated:
            self._line.send(message)
        else:
            self._leaving.set()

    def _report_progress(self) -> None:
        """Send what functions report, at most a few times a second; in a thread."""
        while True:
            self._reporters.changed.wait()
            self._reporters.changed.clear()
            self._send_reports()
            threading.Event().wait(_REPORT_S)

    def _send_reports(self) -> None:
        with self._sending:  # an older report never follows a newer one
            for report in self._reporters.waiting():
                numbers, meta = report.values
                self._line.send({"kind": "report", "progress": numbers, "meta": json.loads(meta) if meta else None})
                self._reporters.confirm([report], ["OK"])


def _nothing(_: Attempt) -> None:
    """The outcome is sent when everything has ended."""
