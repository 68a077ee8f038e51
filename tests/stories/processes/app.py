"""The application whose workers the tests start, kill and freeze; configured by environment variables.

Handlers append to a file: a line before they do anything, and one at their end. It is the reference for the tests.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from schedq import Fixed, Queue, current_job

NAME = "work"
NOTES = "notes.jsonl"
FOLDER = Path(os.environ.get("APP_FOLDER", "."))
"""The folder for the notes and the gates."""


def made(redis: str | None, settings: dict[str, Any]) -> Queue:
    """The queue; its `backoff` is given in seconds."""
    plan = Fixed(settings.get("backoff", 1))
    return Queue(NAME, redis=redis, **settings | {"backoff": plan})


if os.environ.get("APP_DIES") and "SCHEDQ_PARENT_FD" in os.environ:
    os._exit(3)

if os.environ.get("APP_WAITS_FOR_SIBLINGS"):  # so that the result does not depend on the machine's load
    from schedq.worker import siblings

    for name in ("PATIENCE_S", "START_PATIENCE_S"):
        setattr(siblings, name, 60.0)

if os.environ.get("APP_LONG_GOODBYES"):  # a worker that stops has a minute for deregistering, instead of a second
    from schedq.worker import served, worker

    served._DEREGISTER_S = worker._LEAVE_S = 60.0  # type: ignore[misc]

queue = made(os.environ.get("APP_REDIS"), json.loads(os.environ.get("APP_SETTINGS", "{}")))
bare = Queue("bare")
thing = {"not": "a queue"}


def note(word: str) -> None:
    """Write down an event of the current job."""
    job = current_job()
    line = {"word": word, "id": job.id, "attempt": job.attempts, "pid": os.getpid(), "at_ms": time.time() * 1000}
    file = os.open(FOLDER / NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, json.dumps(line).encode() + b"\n")  # a single write, so that lines of several processes don't mix
    os.close(file)


def is_first_run() -> bool:
    """Whether no handler has run this job before; true only once per job."""
    try:
        os.close(os.open(FOLDER / f"run-{current_job().id}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def is_open(gate: str) -> bool:
    return (FOLDER / gate).exists()


@queue.task
async def brief() -> int:
    note("start")
    note("end")
    return os.getpid()


@queue.task
async def nap(seconds: float) -> int:
    note("start")
    await asyncio.sleep(seconds)
    note("end")
    return os.getpid()


@queue.task
def doze(seconds: float) -> int:
    """A nap in a thread."""
    note("start")
    time.sleep(seconds)
    note("end")
    return os.getpid()


@queue.task
async def gated(gate: str) -> int:
    """Its first run ends when the gate is open; later runs do not wait."""
    note("start")
    waits = is_first_run()
    while waits and not is_open(gate):
        await asyncio.sleep(0.01)
    note("end")
    return os.getpid()


@queue.task
async def reporting(gate: str) -> int:
    """Its first run reports that it is half done and waits until the gate is open; later runs report nothing."""
    note("start")
    is_first, job = is_first_run(), current_job()
    if is_first and hasattr(job, "progress"):  # the release before has none
        job.progress(1, 2)
        job.update_meta(by=os.getpid())
    while not is_open(gate if is_first else f"{gate}-again"):
        await asyncio.sleep(0.01)
    note("end")
    return os.getpid()


@queue.task
def gated_in_thread(gate: str) -> int:
    """The same in a thread, which can't be cancelled."""
    note("start")
    waits = is_first_run()
    while waits and not is_open(gate):
        time.sleep(0.01)
    note("end")
    return os.getpid()


@queue.task
def lingers(gate: str) -> int:
    """Its first run ends when the gate is open; later runs take a while."""
    note("start")
    if not is_first_run():
        time.sleep(0.4)
    else:
        while not is_open(gate):
            time.sleep(0.01)
    note("end")
    return os.getpid()


@queue.task
def computes(gate: str) -> int:
    """Holds the interpreter most of the time at first, as long as jobs are being shared, and waits for the gate."""
    note("start")
    while not is_open(gate):
        if time.thread_time() < 0.3:
            sum(range(50_000))
        else:
            time.sleep(0.01)
    note("end")
    return os.getpid()


@queue.task
async def blocks(gate: str) -> None:
    """Blocks the event loop until the gate is open."""
    note("start")
    while not is_open(gate):
        time.sleep(0.01)
    note("end")


@queue.task
async def tells(secret: str) -> None:
    """Writes to a log of its own, and fails once."""
    logging.getLogger("application").warning("a mail went out", extra={"mail": 7})
    if current_job().attempts == 1:
        raise RuntimeError("not this time")


@queue.task
async def hogs(gate: str) -> int:
    """Keeps the event loop busy until the gate is open."""
    note("start")
    while not is_open(gate):
        time.sleep(0.01)
    return os.getpid()


@queue.task
async def hogs_in_c(lock: str) -> int:
    """Blocks the event loop in a C call, which signals don't interrupt, until no other process locks the file."""
    note("start")
    with (FOLDER / lock).open() as file:
        ctypes.CDLL(None).flock(file.fileno(), fcntl.LOCK_EX)
    return os.getpid()


@queue.task
async def keeps_the_interpreter(seconds: float) -> int:
    """Holds the GIL in a C computation, in the end for this many seconds of CPU time."""
    note("start")
    digits, took = 20_000, 0.0
    while took < seconds:
        digits *= 2
        began = time.process_time()
        (7**digits) ** 3
        took = time.process_time() - began
    return round(took * 1000)


@queue.task
def stuck() -> int:
    """Its first run never ends, and can't be cancelled."""
    note("start")
    if is_first_run():
        threading.Event().wait()
    note("end")
    return os.getpid()


@queue.task
async def stuck_in_executor() -> int:
    """The same in a thread started by asyncio."""
    note("start")
    if is_first_run():
        await asyncio.to_thread(threading.Event().wait)
    note("end")
    return os.getpid()


@queue.task
async def deaf() -> int:
    """Its first run never ends, and ignores cancellation."""
    note("start")
    waits = is_first_run()
    while waits:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
    note("end")
    return os.getpid()


@queue.task
def poison() -> None:
    """Kills the process that runs it."""
    note("start")
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


@queue.task
def vanishes() -> int:
    """Its first run ends its process with exit code 0."""
    note("start")
    if is_first_run():
        os._exit(0)
    return os.getpid()


@queue.task
def fails() -> None:
    note("start")
    raise RuntimeError("always fails")


@queue.task
def logs_a_line() -> int:
    logging.getLogger("app").warning("from a function")
    return os.getpid()


@queue.task
def ends_a_child() -> list[int]:
    """Returns the exit codes of child processes that were sent SIGTERM and SIGINT."""
    codes = []
    for number in (signal.SIGTERM, signal.SIGINT):
        child = subprocess.Popen(["sleep", "3600"])
        child.send_signal(number)
        try:
            codes.append(child.wait(20))
        except subprocess.TimeoutExpired:
            child.kill()
            codes.append(child.wait())
    return codes


class Interrupting(logging.Filter):
    """Raises for every line."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise KeyboardInterrupt


class Waiting(logging.Filter):
    """Waits for a lock that no thread of a forked child releases, as one that another thread held at the fork."""

    def filter(self, record: logging.LogRecord) -> bool:
        lock = threading.Lock()
        lock.acquire()
        return lock.acquire()


def forked(how: str) -> int:
    """Returns a child's exit code, -1 if it does not end; `how` is the way the child returns from the handler."""
    pid = os.fork()
    if pid == 0:
        if how == "raises":
            raise RuntimeError("in the child")
        if how == "exits":
            os._exit(7)
        if how == "breaks the log":
            logging.getLogger("schedq").addFilter(Interrupting())
        if how == "blocks the log":
            logging.getLogger("schedq").addFilter(Waiting())
        return -2
    for _ in range(2000):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -1


@queue.task
async def forks(how: str) -> int:
    """Returns the exit code of a forked child that returns from the handler in one of several ways."""
    note("start")
    if how == "in a task":
        return await asyncio.create_task(forks_within("returns"))
    if how == "in an executor":
        return await asyncio.to_thread(forked, "returns")
    if how == "in a callback":
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: future.set_result(forked("returns")))
        return await future
    return await forks_within(how)


async def forks_within(how: str) -> int:
    """The same, several awaits deep."""
    code = forked(how)
    if code == -2 and how == "awaits":
        await brief_pause()
    return code


async def brief_pause() -> None:
    """Yield to the event loop once."""
    await asyncio.sleep(0.01)


@queue.task
async def exits_in_a_task() -> None:
    """A task that the handler waits for tries to exit the process."""
    note("start")
    await asyncio.gather(leaves())


async def leaves() -> None:
    """Exits like a command that is called as a function."""
    sys.exit(3)


@queue.task
def forks_in_thread(how: str) -> int:
    """The same in a plain handler."""
    note("start")
    return forked(how)


@queue.task
def forks_by_multiprocessing() -> int | None:
    """Returns the exit code of a multiprocessing child."""
    child = multiprocessing.get_context("fork").Process(target=sum, args=([1, 2],))
    child.start()
    child.join(60)
    return child.exitcode


@queue.task
def forks_and_is_asked() -> int:
    """Sends SIGUSR1 to a forked process; returns the negative number of the signal that ended it."""
    note("start")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, b"ready")
        time.sleep(60)
        os._exit(1)
    os.read(reading, 5)
    os.kill(pid, signal.SIGUSR1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@queue.task
def rude() -> None:
    """Raises an error whose text is not a single line of ASCII."""
    note("start")
    raise RuntimeError("two\nlines, \x1b[31mred\x1b[0m, ü and \u2028")
