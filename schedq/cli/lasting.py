"""Commands that run until they are told to stop."""

from __future__ import annotations

import asyncio
import atexit
import gc
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final

from schedq.errors import SchedqError
from schedq.fleet import ENDED, REFUSED
from schedq.logger import log
from schedq.service import PARENT_FD
from schedq.worker import stacks
from schedq.worker.inquiry import answer_inquiries

_ENDINGS: Final = (signal.SIGTERM, signal.SIGINT)
_asked: Final[list[int]] = []
"""Signals that asked for the end before the work had begun."""
_MOST_TOLD: Final = 4096
_LEAST_NEW: Final = 10_000
"""Objects that must be new before cycles are looked for."""
_LINGER_S: Final = 2.0
"""Seconds that threads and tasks which the application started get to end after the work has."""


def heed_signals() -> None:
    """Until the work has begun there is nothing to end in order: SIGTERM and SIGINT end the process, with code 0.

    A child of `--processes` leaves them to its parent from here on, so that one to the whole group counts once.
    SIGUSR1 writes the stacks, also of what the work has not reached yet.
    """
    answer_inquiries()
    is_child = PARENT_FD in os.environ
    for number in _ENDINGS:
        # Not SIG_IGN: the handlers' own processes would inherit that, and could not be ended any more.
        signal.signal(number, _pass_over if is_child else _leave)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Do the work, which minds the signals, to its end; what it can't go on with is logged, and the exit code is 1.

    A child of `--processes` tells its parent instead, which logs it once for all.
    """
    fd = os.environ.get(PARENT_FD)
    _calm_the_collector()
    if _asked:
        work.close()
        sys.exit(0)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            _go_on(runner.get_loop(), _to_the_end(work, None if fd is None else int(fd)))
    except SchedqError:
        sys.exit(1)  # it is in the log
    finally:
        for number in _ENDINGS:
            signal.signal(number, _pass_over)  # it is on its way out


def _go_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Run the loop until the work is done, also if code of the application tries to end the process.

    A SystemExit or KeyboardInterrupt of a task or callback that a handler started stops the loop and comes out here.
    Whoever awaits that task has it as well; the loop goes on with what is next. Signals raise neither by now.
    """
    task = loop.create_task(work)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt) as error:
            if task.done() or _asked:
                raise
            log.error("a task or callback of the application tried to end the process; going on", exc_info=error)


def _calm_the_collector() -> None:
    """Look for cycles less often, and never again in what is loaded by now: that was a seventh of a busy worker's time.

    Jobs under way are some twenty objects each, freed without it as they end; by default it would look through
    them for every 700 new ones.
    """
    gc.collect()
    gc.freeze()
    first, *rest = gc.get_threshold()
    if first:  # 0: the application has switched it off
        gc.set_threshold(max(first, _LEAST_NEW), *rest)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop: uvloop, where that is installed; None is asyncio's own."""
    try:
        made: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return made


async def _to_the_end(work: Coroutine[Any, Any, None], parent: int | None) -> None:
    code = 1
    stacks.loops.add(asyncio.get_running_loop())
    try:
        await work
        code = 0
        _tell(parent, ENDED)
    except SchedqError as error:
        if not _tell(parent, REFUSED + str(error).encode(errors="replace")[:_MOST_TOLD]):
            log.error("%s", error)
        raise
    finally:
        # From here on asyncio and the interpreter wait for what the application started; that may be for ever.
        timer = threading.Timer(_LINGER_S, _leave_all_behind, (code,))
        timer.daemon = True
        timer.start()
        atexit.register(timer.cancel)  # no thread is left then, and who flushes something at exit may take its time


def _tell(parent: int | None, words: bytes) -> bool:
    """Say the last words to the parent; answers whether there is one that can hear them."""
    if parent is None:
        return False
    try:
        os.write(parent, words)
    except OSError:
        return False  # it is gone
    return True


def _leave_all_behind(code: int) -> None:
    log.warning("leaving without the threads and tasks that do not end")
    logging.shutdown()
    os._exit(code)


def _leave(number: int, _frame: FrameType | None) -> None:
    # Where the collector is just running some object's __del__, Python drops what a handler raises: `run` looks, too.
    _asked.append(number)
    sys.exit(0)


def _pass_over(_number: int, _frame: FrameType | None) -> None:
    pass
