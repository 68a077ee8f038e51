"""Keeps child processes of a worker's program from acting as a second worker.

A child that a handler has forked has copies of the event loop and of all connections, and shares their sockets with
the worker. If it read or wrote there, it would take the worker's replies or corrupt its requests. The handler's own
code may run in it, as between `os.fork` and `os._exit`. When that code returns, raises or awaits something, control
would pass to the worker's code, so the child exits instead.

It logs a warning first. A handler or filter of the log may need a lock that another thread held at the fork. The child
has no such thread, so it would wait forever, and so would a handler that waits for the child. A thread written in C,
which needs no lock of Python, therefore ends the child if the log takes too long.
"""

from __future__ import annotations

import faulthandler
import inspect
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from schedq.errors import UsageError
from schedq.logs import log
from schedq.model import current_job

EXIT_CODE: Final = 1
"""The exit code of a child that returns from its handler; also the one with which `faulthandler` ends a process."""
_LOG_S: Final = 2.0
"""Seconds that a child may spend on the log before it exits without."""
_STDERR: Final = 2
_WORKER: Final = ("schedq.worker.", "schedq.cli.daemon.")
_POOLS: Final = ("concurrent.futures.",)
_LOOPS: Final = ("asyncio.", "uvloop.")
_loops: Counter[int] = Counter()  # threads in which workers of this process run
_is_hooked = False


def refuse_import_of_main() -> None:
    """Check that this process does not only import the main program, as children of `multiprocessing` do.

    Raises:
        UsageError: it does. A worker there would claim jobs until the child is ended.
    """
    process = sys.modules.get("multiprocessing.process")
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        raise UsageError(
            "a child process that imports the main program would start a worker, too: "
            'put what the program does under if __name__ == "__main__":'
        )


@contextmanager
def guarded() -> Iterator[None]:
    """While a worker runs in this thread, end children of its handlers where they would return into its code."""
    global _is_hooked
    if not _is_hooked:
        _is_hooked = True
        os.register_at_fork(after_in_child=_in_child)
    thread = threading.get_ident()
    _loops[thread] += 1
    try:
        yield
    finally:
        _loops[thread] -= 1


def _in_child() -> None:
    """Prepare the child; called before `os.fork` returns in it."""
    is_worker, on_loop = any(_loops.values()), _loops[threading.get_ident()] > 0
    _loops.clear()
    frame = sys._getframe(1) if is_worker else None
    outermost = frame and _outermost(frame, on_loop=on_loop)
    if outermost:
        # A profile function costs nothing before the fork, and is called for returns, exceptions and awaits alike.
        # Stopping the loop would not suffice: callbacks that are ready run first, and would read the worker's replies.
        sys.setprofile(_watch(outermost))


def _outermost(frame: FrameType, *, on_loop: bool) -> FrameType | None:
    """Return the outermost frame of the handler's code, which returns to the worker's; None if it does not."""
    inner, outer = frame, frame.f_back
    while outer is not None:
        module = f"{outer.f_globals.get('__name__', '')}."
        if module.startswith("multiprocessing."):
            return None  # multiprocessing ends its children itself
        if module.startswith((*_WORKER, *_POOLS)):
            return inner
        if on_loop and module.startswith(_LOOPS) and not outer.f_code.co_flags & inspect.CO_COROUTINE:
            return inner
        inner, outer = outer, outer.f_back
    return None


def _watch(outermost: FrameType) -> Any:
    def leave(frame: FrameType, event: str, _: object) -> None:
        if frame is outermost and event == "return":
            try:
                faulthandler.dump_traceback_later(_LOG_S, exit=True, file=_STDERR)
                job = current_job.running_job()
                log.warning(
                    "job %s: its handler called os.fork, and the child (pid %d) returned from the handler or awaited "
                    "something; it exits here, because it is no worker; end children with os._exit, or use subprocess",
                    job.id if job else "?",
                    os.getpid(),
                )
            finally:
                os._exit(EXIT_CODE)  # even if logging raises

    return leave
