"""An application whose tasks run in child processes: the tests and the children register them with a queue."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from schedq import AsyncQueue, Depends, Fixed, Queue, current_job
from schedq.isolation.settings import IsolationSettings
from schedq.logs import JobFields
from schedq.worker import Worker
from schedq.worker.application import Loaded


@contextmanager
def lifespan() -> Iterator[int]:
    yield os.getpid()


def pid() -> int:
    return os.getpid()


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def end_with(code: int) -> None:
    os._exit(code)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def loop_in_c() -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")


def process_began() -> float:
    """When this process was created, in Unix seconds; the kernel counts in hundredths."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def began_and_slept(seconds: float) -> float:
    """Sleep, and return when the call began, in Unix seconds."""
    began = time.time()
    time.sleep(seconds)
    return began


async def hand_over_two(first: float) -> list[float]:
    """Hand over a call that takes so many seconds and, behind it, one that takes none."""
    job = current_job()
    calls = [asyncio.ensure_future(job.run_isolated(began_and_slept, seconds)) for seconds in (first, 0.0)]
    return [await each for each in calls]


class OutOfStockError(ValueError):
    """An error of the application."""


def fail() -> None:
    raise OutOfStockError("no such thing")


def ignore(path: str) -> str:
    """Run on, whatever is asked of it; the second time, return at once."""
    if Path(path).exists():
        return "second"
    Path(path).write_text(str(os.getpid()))
    while True:
        with suppress(BaseException):
            time.sleep(600)


def start_a_process(path: str, end: str) -> None:
    """Start a process, write its id, and end in some way."""
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(f"{path}.new").write_text(str(started.pid))
    Path(f"{path}.new").rename(path)
    if end == "crash":
        crash()
    elif end == "wait":
        time.sleep(600)


def fork_and_return() -> int:
    child = os.fork()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else -1


def log_fields() -> dict[str, object]:
    """The fields that a record logged here gets."""
    record = logging.LogRecord("app", logging.INFO, "app.py", 1, "text", None, None)
    JobFields(["tenant"]).filter(record)
    return {name: record.__dict__[name] for name in ("job_id", "queue", "task", "attempt", "tenant")}


def trace() -> str:
    """The trace of the current span, as a job's `trace`."""
    from schedq.tracing import spans

    return spans.current()


def renew() -> bool:
    return current_job().renew()


def waste(bytes_: int) -> int:
    """Leave some memory in use."""
    kept.append(bytearray(os.urandom(1)) * bytes_)
    return os.getpid()


kept: list[bytearray] = []


def survive_sigterm() -> str:
    os.kill(os.getpid(), signal.SIGTERM)
    return "still here"


def clean_up_when_ended(path: str) -> None:
    try:
        Path(path).write_text("runs")
        time.sleep(60)
    except TimeoutError as error:
        Path(path).write_text(f"cleaned up: {error}")
        raise


def facts(day: date) -> list[object]:
    job = current_job()
    job.progress(1, 2, "half")
    job.update_meta(seen=True)
    return [type(day).__name__, job.id, dict(job.headers), job.queue, job.task, job.worker != ""]


def hog() -> None:
    held = []
    while True:
        held.append(bytearray(8 * 1024**2))
        time.sleep(0.05)


def until_cancelled() -> str:
    while not current_job().is_cancelled:
        time.sleep(0.01)
    return "saw it"


@contextmanager
def session() -> Iterator[str]:
    yield f"session of {os.getpid()}"


def with_dependencies(mine: str = Depends(session), of_worker: int = Depends(lifespan)) -> list[object]:
    return [mine == f"session of {os.getpid()}", of_worker == os.getpid()]


async def on_the_loop() -> int:
    return os.getpid()


async def hand_over() -> list[Any]:
    """What functions in child processes return, and the processes of some more of them than there are slots."""
    job = current_job()
    pids = await asyncio.gather(*(job.run_isolated(pid) for _ in range(5)))
    return [await job.run_isolated(facts, day=date(2026, 1, 2)), await job.run_isolated(log_fields), pids]


class UnreadableError(Exception):
    """An error that can be pickled but not read: its arguments are not those of `__init__`."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} of {two}")


def fail_unreadably() -> None:
    raise UnreadableError(1, 2)


async def hand_over_failures() -> list[Any]:
    """What is raised, with the end of its traceback."""
    found = []
    for function in (fail, fail_unreadably, partial(end_with, 3), crash, lambda: 1, on_the_loop):
        try:
            await current_job().run_isolated(function)
        except Exception as error:
            kind = type(error)
            found.append([kind.__name__, str(error), "".join(traceback.format_exception(error))])
    return found


async def hand_over_and_ignore(path: str) -> None:
    await current_job().run_isolated(ignore, path)


def hand_over_in_a_thread() -> None:
    asyncio.run(current_job().run_isolated(pid))


async def mark(attempt: Any, call_next: Any) -> Any:
    """Middleware that adds its process."""
    result = await call_next()
    return [os.getpid(), result] if attempt.task == "pid" else result


def end_badly(path: str, how: str) -> None:
    """Fail in some way. The hooks write to the file."""
    if how == "fail":
        fail()
    elif how in ("crash", "hang"):
        crash()
    elif how == "clean up":
        time.sleep(600)
    elif how == "swallow":
        with suppress(TimeoutError):
            time.sleep(600)
    else:
        loop_in_c()


async def on_failure(attempt: Any, error: BaseException) -> None:
    note("failure", attempt, error)
    await asyncio.sleep(600 if "hang" in attempt.job.payload["args"] else 0)


def on_retry(attempt: Any, error: BaseException, delay: float) -> None:
    note("retry", attempt, error)


def on_success(attempt: Any, result: object) -> None:
    note("success", attempt, None)


def note(hook: str, attempt: Any, error: BaseException | None) -> None:
    """Write down a call of a hook."""
    assert current_job().id == attempt.job.id
    path, how = attempt.job.payload["args"]
    with Path(path).open("a") as file:
        file.write(f"{how}: {hook} in {os.getpid()}, {error}\n")


TASKS = (
    pid,
    process_began,
    survive_sigterm,
    clean_up_when_ended,
    crash,
    end_with,
    killed,
    fail,
    ignore,
    start_a_process,
    fork_and_return,
    log_fields,
    trace,
    renew,
    waste,
    facts,
    hog,
    until_cancelled,
    with_dependencies,
)


def define(queue: Any, *, middleware: bool = False) -> dict[str, Any]:
    """Register the tasks with a queue."""
    queue.lifespan = lifespan
    if middleware:
        queue.use(mark)
    found = {each.__name__: queue.task(isolate=True, max_attempts=1)(each) for each in TASKS}
    found["end_badly"] = queue.task(
        isolate=True,
        max_attempts=2,
        backoff=Fixed(0),
        on_success=on_success,
        on_retry=on_retry,
        on_failure=on_failure,
    )(end_badly)
    found["loop_in_c"] = queue.task(isolate=True, max_attempts=1, timeout=2.5)(loop_in_c)
    for function in (
        on_the_loop,
        hand_over,
        hand_over_two,
        hand_over_failures,
        hand_over_and_ignore,
        hand_over_in_a_thread,
    ):
        found[function.__name__] = queue.task(max_attempts=1)(function)
    return found


def load_nothing() -> Loaded:
    """Fail, as an application that can't be imported."""
    raise ImportError("no module named 'shop'")


def load(name: str, url: str, middleware: bool = False, kind: type[Queue] | type[AsyncQueue] = Queue) -> Loaded:
    """Create the queue in a child."""
    queue = kind(name, redis=url, visibility_ms=30_000)
    define(queue, middleware=middleware)
    return Loaded([queue], ())


def main(name: str, url: str) -> None:
    """Run a worker of these tasks until it is stopped."""
    queue = Queue(name, redis=url, visibility_ms=30_000)
    define(queue)
    asyncio.run(Worker([queue], concurrency=3, isolation=IsolationSettings(load=partial(load, name, url))).run())


if __name__ == "__mp_main__" and "SLOW_IMPORT" in os.environ and Path(os.environ["SLOW_IMPORT"]).exists():
    Path(os.environ["SLOW_IMPORT"]).write_text(str(os.getpid()))  # a child that imports this
    time.sleep(600)
if __name__ == "__main__":
    main(*sys.argv[1:])
