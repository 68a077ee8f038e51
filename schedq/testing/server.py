"""The servers of tests: each is started here, in a new temporary folder, and no other server is ever emptied."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Final

from schedq.embedded import ensure_server, stop_server
from schedq.embedded.watcher import InlineConnection
from schedq.errors import StoreUnavailable, UsageError

_PATIENCE_S: Final = 30.0
_ours: Final[dict[str, int]] = {}
"""URLs of the servers that this module has started and not stopped -> the process that did."""


@contextmanager
def running_server() -> Iterator[str]:
    """An embedded server in a new temporary folder; it is stopped, and the folder deleted, at the end.

    Yields:
        Its URL.
    """
    url = _start()
    try:
        yield url
    finally:
        _stop(url)


def server_of_process() -> str:
    """The URL of a server that lives as long as this process; a forked process gets one of its own."""
    return _of(os.getpid())


def empty(url: str) -> None:
    """Delete everything that is on a server that this process started with this module.

    Raises:
        UsageError: it is any other server, whose data may be needed; nothing is deleted.
        StoreUnavailable: the server does not start.
    """
    if _ours.get(url) != os.getpid():
        raise UsageError(
            f"tests delete all data of their server, so they only use one that they start themselves, not {url!r}; "
            "call queue_tester() without a URL"
        )
    try:
        reply = _flushed(url)
    except OSError:  # it had been idle for long, and stopped at this moment
        reply = _flushed(url)
    if not reply.startswith("+OK"):
        raise StoreUnavailable(f"the server of the tests, {url}, can't be emptied: {reply}")


def _flushed(url: str) -> str:
    with closing(InlineConnection(ensure_server(url), _PATIENCE_S)) as connection:
        return connection.ask("FLUSHALL")


@cache
def _of(pid: int) -> str:  # noqa: ARG001 - the key of the cache
    url = _start()

    atexit.register(_stop, url)
    # A process of `multiprocessing`, such as one of Django's parallel tests, calls this in place of atexit's functions.
    Finalize(None, _stop, [url], exitpriority=1)
    return url


def _start() -> str:
    folder = tempfile.mkdtemp(prefix="schedq-test-")
    url = f"embedded://{folder}"
    _ours[url] = os.getpid()
    return url


def _stop(url: str) -> None:
    """Stop the server, if a test has used it, and delete its folder."""
    if _ours.pop(url, None) != os.getpid():
        return  # it is stopped already, or it is the server of a parent that was forked
    folder = Path(url.removeprefix("embedded://"))
    try:
        stop_server(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
