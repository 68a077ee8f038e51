"""The processes of `schedq worker` and `schedq promoter`, and the parent of `--processes`, which replaces dead workers.

Parent and child are connected by a socket. The parent sends `s` for each stop. The child reports once that Redis has
accepted a claim, and at its end that it ended gracefully, or why it can't continue. An exit code would not suffice,
because a handler may end its process with any code.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from schedq.background.promoter import Promoter
from schedq.background.reconnecting_client import LogThrottle
from schedq.background.shared_connections import (
    SharedConnections,
    availability_of,
    by_server,
    shared_connections,
)
from schedq.errors import SchedqError, UsageError
from schedq.isolation.death import manner
from schedq.logs import log
from schedq.model.times import monotonic, sleep
from schedq.queue.queue import QueueBase
from schedq.transitions import announce, heartbeat, unwrap
from schedq.worker import Worker
from schedq.worker.heartbeat import version
from schedq.worker.siblings import SIBLINGS, Board

PARENT_FD: Final = "SCHEDQ_PARENT_FD"
"""Environment variable of a child of `--processes`: the socket to its parent."""
SERVED: Final = b"served "
"""A child sends this to its parent when Redis has accepted its first claims."""


async def run_worker(worker: Worker, *, is_burst: bool = False) -> bytes:
    """Run a worker until SIGTERM or SIGINT or, as a child, until the parent sends a stop or has exited.

    Args:
        worker: the worker.
        is_burst: its limits of jobs and time are those of the whole command, so no process follows it.

    Returns:
        What a child reports to its parent at its end: `ENDED` or `RETIRED`.

    Raises:
        UsageError: Redis rejects a request for a permanent reason.
    """
    if parent := os.environ.get(PARENT_FD):
        worker.served = partial(_say, int(parent), SERVED)
    _obey(worker.stop)
    try:
        await worker.run()
    finally:
        for queue in worker.queues:
            await queue.aio.aclose()  # the connections that handlers enqueued with
    is_over = is_burst and worker.capacity.is_used_up
    return RETIRED if worker.is_retired and not is_over else ENDED


async def run_promoters(queues: Sequence[QueueBase]) -> None:
    """Run the promoters of some queues until SIGTERM or SIGINT.

    Raises:
        UsageError: Redis rejects a request for a permanent reason.
    """
    asked = asyncio.Event()
    _obey(asked.set)
    connections = [shared_connections(here, availability_of(here)) for here in by_server(queues)]
    daemons = [_Daemon(queue, shared) for shared in connections for queue in shared.queues]
    work = [asyncio.create_task(daemon.run()) for daemon in daemons]
    ready = asyncio.create_task(_say_when_ready(daemons))
    stop = asyncio.create_task(asked.wait())
    try:
        done, _ = await asyncio.wait([stop, *work], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
    finally:
        for task in (stop, ready, *work):
            task.cancel()
        await asyncio.gather(stop, ready, *work, return_exceptions=True)
        await asyncio.gather(*(daemon.leave() for daemon in daemons), return_exceptions=True)
        await asyncio.gather(*(shared.aclose() for shared in connections))


async def _say_when_ready(daemons: Sequence[_Daemon]) -> None:
    """Log that the promoters are ready as soon as every Redis has replied, and not before."""
    for daemon in daemons:
        await daemon.answered.wait()
    where = ", ".join(daemon.queue.name for daemon in daemons)
    log.info("promoter: ready for %s, schedq %s", where, version() or "?")


class _Daemon:
    """The promoter of one queue without application code. It uses the settings that the workers have stored."""

    def __init__(self, queue: QueueBase, shared: SharedConnections) -> None:
        self.queue = queue
        self._client = shared.client(queue)
        self._unknown = queue.settings.without_application()
        self._promoter = Promoter(
            queue, self._client, self._unknown, self._read_settings, due=shared.due(queue), rest_s=shared.rest_s
        )
        self._throttle = LogThrottle()
        self.answered = self._promoter.has_looked

    async def run(self) -> None:
        await self._read_settings()
        await self._promoter.run()

    async def leave(self) -> None:
        """Release the promoter lease, so that another process takes over at once."""
        promoter_id = self._promoter.id
        try:
            async with asyncio.timeout(1):
                await self._client.ask(heartbeat.leave(self.queue.settings, promoter_id, promoter_id))
        finally:
            await self._client.aclose()

    async def _read_settings(self) -> None:
        try:
            settings = self.queue.settings
            # If the list of queues was lost, this may be the only process that adds the name again.
            name = [] if settings.tagged else [announce.enlist(settings)]
            self.queue.address.enlist(settings.name, again=self.answered.is_set())  # on a cluster
            stored, *_ = await self._client.execute([announce.read_settings(settings), *name])
            unwrap(stored)
        except UsageError:
            raise
        except SchedqError as error:
            self._throttle.log(f"queue {self.queue.name}: settings", error)
        else:
            self._promoter.use(self._unknown.with_fields(stored))


def _obey(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    fd = os.environ.pop(PARENT_FD, None)  # so that handlers' own processes do not inherit it
    for number in (signal.SIGTERM, signal.SIGINT):
        if fd is None:
            loop.add_signal_handler(number, stop)
        else:
            # The parent gets the signal too and passes it on, so that a signal to the whole group counts once. Not
            # SIG_IGN, which the handlers' own processes would inherit.
            signal.signal(number, lambda _number, _frame: None)
    if fd is not None:
        loop.add_reader(int(fd), _hear_parent, int(fd), stop)


def _say(fd: int, words: bytes) -> None:
    with suppress(OSError):  # the parent has exited
        os.write(fd, words)


def _hear_parent(fd: int, stop: Callable[[], None]) -> None:
    words = b""
    with suppress(OSError):  # a parent that is killed before it has read everything resets the connection
        words = os.read(fd, 16)
    for _ in words or b"s":
        stop()
    if not words:
        log.warning("the parent process has exited; stopping")
        asyncio.get_running_loop().remove_reader(fd)


ENDED: Final = b"ended"
"""The last message of a child that ends gracefully; it is not replaced."""
RETIRED: Final = b"retired"
"""The last message of a child that exits because of `--max-jobs` or `--max-time`; it is replaced at once."""
REFUSED: Final = b"refused "
"""The last message of a child that can't continue for a reason that would stop others too; the reason follows."""
_MOST_WORDS: Final = 8192
_ENDINGS: Final = (signal.SIGTERM, signal.SIGINT)
_QUICK_S: Final = 10.0
_LONGEST_WAIT_S: Final = 30.0
_OVERTIME_S: Final = 15.0
_TICK_S: Final = 0.1
MONITOR_FD: Final = "SCHEDQ_MONITOR_FD"
"""Environment variable of a watched child: the socket on which it replies to its parent's health checks."""


class _Child:
    """One worker process and its successors.

    Attributes:
        number: the number of the process in logs.
        process: the running process, or None.
        start_at: when the next process may start, on the monotonic clock.
        is_served: Redis has accepted a claim of this process or of a predecessor.
        is_finished: it ended gracefully, so it is not replaced.
        is_retired: it exited because of `--max-jobs` or `--max-time`.
        complaint: why it could not continue, if the reason would stop others too; otherwise ''.
        port: the port on the loopback interface for health checks, if it is watched.
    """

    def __init__(self, command: Sequence[str], number: int, board: Board | None, *, watched: bool) -> None:
        self._command = command
        self._board = board
        self._is_watched = watched
        self.port: int | None = None
        self.number = number
        self._deaths = 0
        self._started_at = 0.0
        self._wire: socket.socket | None = None
        self._words = b""
        self.process: subprocess.Popen[bytes] | None = None
        self.start_at = 0.0
        self.is_served = False
        self.is_finished = False
        self.is_retired = False
        self.complaint = ""

    def start(self) -> None:
        """Start a process. If the system can't, this is tried again later."""
        is_first = self._started_at == 0
        self._started_at = monotonic()
        self._wire, theirs = socket.socketpair()
        self._words = b""
        listener: socket.socket | None = None
        try:
            environment, fds = {**os.environ, PARENT_FD: str(theirs.fileno())}, [theirs.fileno()]
            if self._board is not None:
                environment[SIBLINGS] = f"{self._board.fd} {self.number - 1}"
                fds.append(self._board.fd)
                if is_first:
                    self._board.starting(self.number - 1)
            if self._is_watched:
                listener = socket.create_server(("127.0.0.1", 0))
                fds.append(listener.fileno())
                environment[MONITOR_FD] = str(listener.fileno())
                self.port = listener.getsockname()[1]
            # SIGUSR1 would end a child that has not installed its handler yet, so block it until the child unblocks it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
            self.process = subprocess.Popen(self._command, env=environment, pass_fds=fds)  # noqa: S603
        except OSError as error:
            self._wire.close()
            self.wait_for_the_next(f"can't be started: {error}")
        else:
            log.info("worker process %d: started, pid %d", self.number, self.process.pid)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
            theirs.close()
            if listener is not None:
                listener.close()

    def ask_for_stacks(self) -> None:
        """Make it log the stacks of its threads and tasks."""
        if self.process is not None:
            self.process.send_signal(signal.SIGUSR1)

    def say_stop(self) -> None:
        """Send one stop. After the second one the child releases its jobs immediately."""
        if self.process is not None and self._wire is not None:
            with suppress(OSError):  # it has already exited
                self._wire.send(b"s")

    def kill(self) -> None:
        """Send SIGKILL."""
        if self.process is not None:
            log.error("worker process %d: does not exit; killed", self.number)
            self.process.kill()

    def look(self) -> int | None:
        """Read its messages, and return its exit code if it has ended."""
        if self.process is None:
            return None
        code = self.process.poll()
        self._words += self._heard()
        self.is_served = self.is_served or self._words.startswith(SERVED)
        if code is not None:
            words = self._words.removeprefix(SERVED)
            assert self._wire is not None
            self._wire.close()
            self.process = None
            if self._board is not None:
                self._board.gone(self.number - 1)
            self.is_finished = code == 0 and words == ENDED
            self.is_retired = code == 0 and words == RETIRED
            self.complaint = words.removeprefix(REFUSED).decode(errors="replace") if words.startswith(REFUSED) else ""
        return code

    def _heard(self) -> bytes:
        """Return the messages that it has sent since the last call."""
        assert self._wire is not None
        with suppress(OSError):
            # Do not read until the end of the stream: a process that the child has forked may keep it open.
            return self._wire.recv(_MOST_WORDS, socket.MSG_DONTWAIT)
        return b""

    def wait_for_the_next(self, reason: str) -> None:
        """Log why the child ended, and set when the next one may start; each quick end in a row doubles the delay."""
        # An end before the first claim is always quick: on a busy machine, imports alone take seconds.
        quick = not self._words.startswith(SERVED) or monotonic() - self._started_at < _QUICK_S
        self._deaths = self._deaths + 1 if quick else 1
        wait = min(_LONGEST_WAIT_S, 0.25 * 2.0 ** min(self._deaths - 1, 10))
        self.start_at = monotonic() + wait
        log.error("worker process %d: %s; a new one starts in %.2f s", self.number, reason, wait)


class Supervisor:
    """Runs `count` copies of a command until SIGTERM or SIGINT.

    Args:
        command: starts one worker.
        count: the number of copies.
        grace: the grace period of the command, in seconds; a child that takes much longer to end is killed.
        watched: each child gets a socket for health checks; see `ports`.
    """

    def __init__(self, command: Sequence[str], count: int, grace: float, *, watched: bool = False) -> None:
        board = Board.create(count) if count > 1 else None  # a single one need not wait for others before it claims
        self._children = [_Child(command, number + 1, board, watched=watched) for number in range(count)]
        self._grace = grace
        self._stops = 0
        self._requests: deque[Callable[[_Child], None]] = deque()  # from signal handlers, for all children
        self._kill_at: float | None = None
        self._code = 0
        self._complaints: set[str] = set()

    def ports(self) -> dict[int, int | None]:
        """The number of each child and its port for health checks; None while it is not running."""
        return {child.number: None if child.process is None else child.port for child in self._children}

    def run(self) -> int:
        """Start the children and supervise them; return the exit code, 0 if all ended gracefully."""
        for number in _ENDINGS:
            signal.signal(number, lambda *_: self._stop())
        signal.signal(signal.SIGUSR1, lambda *_: self._requests.append(_Child.ask_for_stacks))
        while self._mind():
            while self._requests:
                request = self._requests.popleft()
                for child in self._children:
                    request(child)
            sleep(_TICK_S)
        return self._code

    def _mind(self) -> bool:
        """Replace dead children; return whether there is anything left to supervise."""
        now = monotonic()
        for child in self._children:
            code = child.look()
            if code is not None and not child.is_finished:
                self._died(child, code)
            if child.process is None and not child.is_finished and not self._stops and now >= child.start_at:
                child.start()
            if self._kill_at is not None and now >= self._kill_at:
                child.kill()
        if self._stops:
            return any(child.process is not None for child in self._children)
        return not all(child.is_finished for child in self._children)

    def _died(self, child: _Child, code: int) -> None:
        reason = manner(code)
        if child.complaint and any(each.is_served for each in self._children):
            child.wait_for_the_next(child.complaint)  # other children are served, so the reason is not permanent
        elif child.complaint:
            self._give_up(child.complaint)
        elif child.is_retired:
            log.info("worker process %d: has reached its limit of jobs, time or stuck handlers", child.number)
        elif not self._stops:
            child.wait_for_the_next(reason)
        elif code and -code not in _ENDINGS:  # these end a child that has not installed its signal handlers yet
            log.error("worker process %d: %s", child.number, reason)
            self._code = 1

    def _give_up(self, complaint: str) -> None:
        """Stop all children, because none of them could continue, and log the reason once."""
        if complaint not in self._complaints:
            self._complaints.add(complaint)
            log.error("%s", complaint)
        self._code = 1
        if not self._stops:
            self._stop()

    def _stop(self) -> None:
        self._stops += 1
        self._requests.append(_Child.say_stop)
        if self._stops <= 2:
            self._kill_at = monotonic() + (self._grace if self._stops == 1 else 0) + _OVERTIME_S
