"""One child process, as its worker sees it: its states, the messages to and from it, and its end."""

from __future__ import annotations

import asyncio
import atexit
import multiprocessing.util
import os
import signal
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final, NamedTuple

from schedq.isolation import parent_death, wire
from schedq.isolation.settings import IsolationSettings
from schedq.isolation.wire import Message
from schedq.model.times import monotonic

_STACK_S: Final = 2.0
"""Seconds to wait for the stack of a child that got SIGTERM. The kernel delivers it at once, unless it is frozen."""
_LOOK_S: Final = 0.005
_REAPED_S: Final = 1.0
_MOST_STACK: Final = 64 * 1024
MARK: Final = b"end\n"
TIMEOUT_MARK: Final = b"out\n"
"""One of them is written to the child's file before SIGTERM. Otherwise it is from someone else: systemd sends it to all
processes of a service, and the jobs of a worker that is stopping still have its grace period."""


class ChildState(StrEnum):
    """The state of a child.

    Attributes:
        STARTING: it imports the application and enters the lifespans.
        IDLE: it waits for an attempt.
        BUSY: it runs an attempt.
        ENDING: it was asked to exit, or got a signal to end. No attempt waits for it any more.
        DEAD: the kernel has reported its end.
    """

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    ENDING = "ending"
    DEAD = "dead"


STARTING, IDLE, BUSY, ENDING, DEAD = ChildState
LEGAL: Final[dict[ChildState, frozenset[ChildState]]] = {
    STARTING: frozenset({IDLE, ENDING, DEAD}),
    IDLE: frozenset({BUSY, ENDING, DEAD}),
    BUSY: frozenset({IDLE, ENDING, DEAD}),
    ENDING: frozenset({DEAD}),
    DEAD: frozenset(),
}
"""The states that may follow each state."""


class Start(NamedTuple):
    """What a child gets when it starts; all of it is pickled by name.

    Attributes:
        main: the function that the child runs, with the application, its end of the socket, the read end of the pipe
            that says whether the worker is alive, and the file to which it writes its stack.
        application: what `main` needs to find the application.
        machinery: prefixes of the files whose frames are left out of stacks.
    """

    main: Callable[..., object]
    application: Any
    machinery: tuple[str, ...] = ()


class ChildProcess:
    """One child process. Used on the worker's event loop only.

    Args:
        start: what the child runs.
        settings: how it is ended.
        on_message: called with each message from the child.
        on_dead: called once, when it has ended.

    Attributes:
        state: its state.
        attempts: how many attempts it has begun.
        has_been_ended: whether this worker has ended it, so that a signal is no surprise.
    """

    def __init__(
        self,
        start: Start,
        settings: IsolationSettings,
        on_message: Callable[[ChildProcess, Message], None],
        on_dead: Callable[[ChildProcess], None],
    ) -> None:
        self.state = STARTING
        self.attempts = 0
        self.has_been_ended = False
        self._settings = settings
        self._on_message = on_message
        self._on_dead = on_dead
        self._loop = asyncio.get_running_loop()
        self._kill_timer: asyncio.TimerHandle | None = None
        self._stack = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed when the child has ended
        self._writer: asyncio.StreamWriter | None = None
        self._unsent: list[bytes] = []
        self._dumped = b""
        ours, theirs = socket.socketpair()
        self._life_read, self._life = os.pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(
            target=_main,
            args=(start, theirs, _Fd(self._life_read), _Fd(self._stack.fileno())),
            name="schedq-child",
            daemon=False,
        )
        self._task = self._loop.create_task(self._live(ours, theirs))
        _living.add(self)

    @property
    def pid(self) -> int | None:
        """Its process id; None before it has started."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""
        return self._process.exitcode if self.state is DEAD else None

    @property
    def rss(self) -> int | None:
        """Its resident memory in bytes; None if this system does not tell."""
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return None

    def become(self, state: ChildState) -> None:
        """Move to another state.

        Raises:
            RuntimeError: the table does not allow it.
        """
        if state not in LEGAL[self.state]:
            raise RuntimeError(f"child {self.pid}: {self.state} can't become {state}")
        self.state = state

    def send(self, data: bytes) -> None:
        """Send a packed message, now or when the child is connected."""
        if self._writer is None:
            self._unsent.append(data)
        elif not self._writer.is_closing():
            self._writer.write(data)

    def retire(self) -> None:
        """Let an idle child leave its lifespans and exit; it is killed if it takes too long."""
        self.become(ENDING)
        self.has_been_ended = True
        self.send(wire.packed({"kind": "exit"}))
        self._kill_later()

    def end(self, *, has_timed_out: bool = False) -> None:
        """End it with SIGTERM, and with SIGKILL if it is still alive after `kill_after`."""
        if self.state in (ENDING, DEAD):
            return
        self.become(ENDING)
        self.has_been_ended = True
        os.write(self._stack.fileno(), TIMEOUT_MARK if has_timed_out else MARK)
        self._signal(signal.SIGTERM)
        self._kill_later()

    def kill(self) -> None:
        """End it now, with the processes that it has started."""
        if self.state is not DEAD:
            self.has_been_ended = True
            self._signal(signal.SIGKILL)

    async def stack(self) -> str:
        """Return the stack that a child wrote when it got SIGTERM; '' if it could not."""
        deadline = monotonic() + _STACK_S
        while True:
            found = self.dump()
            if found.rstrip().endswith("in <module>") or monotonic() >= deadline or self.state is DEAD:
                return found
            if found:
                deadline = min(deadline, monotonic() + 10 * _LOOK_S)
            await asyncio.sleep(_LOOK_S)

    def dump(self) -> str:
        """Return what faulthandler has written in the child so far."""
        if not self._stack.closed:
            self._dumped = os.pread(self._stack.fileno(), _MOST_STACK, 0)
        return self._dumped.removeprefix(MARK).removeprefix(TIMEOUT_MARK).decode("utf-8", "replace")

    async def ended(self) -> None:
        """Wait until it has ended."""
        await asyncio.wait([self._task])

    def let_die(self) -> None:
        """Let the kernel end it, as at the end of this process."""
        with suppress(OSError):
            os.close(self._life)

    def _kill_later(self) -> None:
        self._kill_timer = self._loop.call_later(self._settings.kill_after, self.kill)

    def _signal(self, number: signal.Signals) -> None:
        # The process is not reaped before `_live` has seen its end, so this id can't belong to another process.
        if self.pid is None or self._process.exitcode is not None:
            return
        if number is signal.SIGKILL:
            self._kill_group(self.pid)
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def _kill_group(self, pid: int) -> None:
        """End what the child has started. The group of a child that is just starting does not exist yet."""
        with suppress(ProcessLookupError, PermissionError):  # macOS refuses it for a group of zombies
            os.killpg(pid, signal.SIGKILL)

    async def _live(self, ours: socket.socket, theirs: socket.socket) -> None:
        """Start the process, pass on its messages, and report its end."""
        try:
            await self._loop.run_in_executor(None, self._start_process)
        except Exception as error:  # noqa: BLE001 - the system has no room for it, or something can't be pickled
            self._on_message(self, {"kind": "unusable", "reason": f"{type(error).__name__}: {error}"})
            ours.close()
            self._close()
            return
        finally:
            theirs.close()
        if self.has_been_ended:
            self._signal(signal.SIGKILL)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        for data in self._unsent:
            self._writer.write(data)
        reading = self._loop.create_task(self._read(reader))
        await self._until_dead()
        await asyncio.wait([reading], timeout=1)  # what it has sent before its end
        reading.cancel()
        self._close()

    def _start_process(self) -> None:
        # SIGUSR1 would end a child that has not installed its handler yet. The child unblocks it when it has.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if self.pid is not None:
            parent_death.end_starting(self._life_read, self.pid)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while (message := await wire.read(reader)) is not None:
            self._on_message(self, message)

    async def _until_dead(self) -> None:
        """Wait for the end of the process, even if processes that it has started still hold its files."""
        pid, dead = self._process.pid or 0, asyncio.Event()
        watched = _opened(pid, self._process.sentinel)
        if watched is not None:
            self._loop.add_reader(watched, dead.set)
            try:
                await dead.wait()
            finally:
                self._loop.remove_reader(watched)
                if watched != self._process.sentinel:
                    os.close(watched)
        self._kill_group(pid)  # before the process is reaped: until then nothing else can have its id
        self._process.join()
        deadline = monotonic() + _REAPED_S
        while self._process.exitcode is None and monotonic() < deadline:  # noqa: ASYNC110 - another thread reaps it now
            await asyncio.sleep(_LOOK_S)

    def _close(self) -> None:
        self.become(DEAD)
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        if self._writer is not None:
            self._writer.close()
        os.close(self._life_read)  # first: its group has ended, and the kernel shall signal nothing
        os.close(self._life)
        self._on_dead(self)
        self.dump()
        self._stack.close()
        _living.discard(self)


_living: Final[set[ChildProcess]] = set()


def _end_all() -> None:
    """End the children of a worker that did not stop gracefully, for which `multiprocessing` would wait at exit."""
    for child in list(_living):
        child.let_die()


# Functions of `atexit` run in the reverse order of their registration. `multiprocessing.util` registers its own when it
# is imported, which waits for all children. It is imported above, so this one runs before it, and so does any that the
# application registers after it has imported `Worker`, for instance to stop the worker.
atexit.register(_end_all)


def _opened(pid: int, sentinel: int) -> int | None:
    """Return a file descriptor that is readable when a process has ended; None if it is gone already."""
    if not hasattr(os, "pidfd_open"):
        return sentinel
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:  # `multiprocessing` reaps ended children whenever it starts another one
        return None
    except OSError:  # an old kernel, or a sandbox that forbids it
        return sentinel


class _Fd:
    """A file descriptor that the child inherits."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        from multiprocessing.reduction import DupFd

        return _detached, (DupFd(self.fd),)


def _detached(duplicate: Any) -> int:
    fd: int = duplicate.detach()
    return fd


def _main(start: Start, connection: socket.socket, life_fd: int, stack_fd: int) -> None:
    """Run in the child, in a process group of its own, which gets no Ctrl-C of the terminal and can be killed whole."""
    with suppress(OSError):
        os.setsid()
    start.main(start.application, connection, life_fd, stack_fd)
