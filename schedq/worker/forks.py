"""A child that a handler forked: it must never come back into the worker, or it would go on as a second one.

It has copies of the event loop and of all connections, and shares their sockets with the worker: whatever it reads or
writes there is the worker's. So the handler's own code may run in it, as between `os.fork` and `os._exit`; when that
code returns, raises or awaits something, control would pass to the worker's code, and the child ends instead.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from schedq.logs import log
from schedq.model import current_job

EXIT_CODE: Final = 1
"""Of a child that comes back from its handler."""
_WORKER: Final = ("schedq.worker.", "schedq.cli.daemon.")
_POOLS: Final = ("concurrent.futures.",)
_LOOPS: Final = ("asyncio.", "uvloop.")
_loops: Counter[int] = Counter()  # threads in which workers of this process run
_is_hooked = False


@contextmanager
def guarded() -> Iterator[None]:
    """While a worker runs in this thread, children of its handlers end where they would come back into it."""
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
    """In the child, before `os.fork` returns there."""
    is_worker, on_loop = any(_loops.values()), _loops[threading.get_ident()] > 0
    _loops.clear()
    frame = sys._getframe(1) if is_worker else None
    outermost = frame and _outermost(frame, on_loop=on_loop)
    if outermost:
        # A profile function costs nothing before the fork, and hears of returns, exceptions and awaits alike. A loop
        # can't be told to stop instead: what is ready to run goes first, and reads the worker's replies.
        sys.setprofile(_watch(outermost))


def _outermost(frame: FrameType, *, on_loop: bool) -> FrameType | None:
    """The last frame of the handler's own code, on the way out to the worker's; None if that is not where it leads."""
    inner, outer = frame, frame.f_back
    while outer is not None:
        module = f"{outer.f_globals.get('__name__', '')}."
        if module.startswith("multiprocessing."):
            return None  # it ends its children itself
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
                job = current_job.running_job()
                log.warning(
                    "job %s: its handler called os.fork, and the child (pid %d) came back from it or awaited "
                    "something: it ends here, as it is no worker; end a child by os._exit, or use subprocess",
                    job.id if job else "?",
                    os.getpid(),
                )
            finally:
                os._exit(EXIT_CODE)  # whatever the application's log does

    return leave
