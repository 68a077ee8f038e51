"""Try the public names of an installed schedq, without any extra or with one.

    python -P scripts/tools/installed.py [EXTRA]

For scripts.tools.package, which runs it in an environment that has the wheel and nothing of the checkout. It imports
nothing but schedq and the standard library.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import pickle
import pkgutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any, Final

import schedq
from schedq import embedded, handbook, metrics, tracing


def every_name() -> None:
    """Each public name exists, is listed by `dir`, and can be pickled; modules without an extra can be imported."""
    for name in schedq.__all__:
        value = getattr(schedq, name)
        assert value is not None, name
        assert name in dir(schedq), name
        assert pickle.loads(pickle.dumps(value)) == value, name  # noqa: S301 - what we have just written
        if isinstance(value, type):
            _has_help(value)
    for module in ("schedq.cli", "schedq.logs", "schedq.testing"):
        importlib.import_module(module)
    for topic in handbook.topics():
        assert handbook.read(topic.name).startswith("# "), topic


def _has_help(kind: type) -> None:
    """A public class and its methods have docstrings, as `help` shows them."""
    assert inspect.getdoc(kind), kind
    for name, member in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and member.__module__.startswith("schedq"):
            assert inspect.getdoc(getattr(kind, name)), f"{kind.__name__}.{name}"


def _run_a_job() -> None:
    """On a server of its own; what a job needs from the wheel is therefore in it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with schedq.Queue("names", redis=f"embedded://{folder}") as queue:
                job = queue.task(max).enqueue(1, 2)
                asyncio.run(schedq.Worker([queue], burst=True).run())
                assert job.result(timeout=30) == 2
        finally:
            embedded.stop_server(folder)


def _dashboard() -> None:
    dashboard = importlib.import_module("schedq.dashboard")
    dashboard.create_app("redis://127.0.0.1:1/0")


NO_REGISTRY: Final[Any] = None
USES: Final[dict[str, tuple[Callable[[], Any], ...]]] = {
    "dashboard": (_dashboard,),
    "embedded": (_run_a_job,),
    "metrics": (
        lambda: metrics.AttemptMetrics([], NO_REGISTRY),
        lambda: metrics.QueueCollector([]),
        lambda: metrics.StuckCollector(list),
        lambda: metrics.merged({}, []),
        lambda: metrics.page([]),
        metrics.needed,
    ),
    "tracing": (tracing.instrument, tracing.instrument_metrics, tracing.MessagingMetrics),
}
"""What works with an extra only. Without it each raises an error that names the extra."""


def without_extras() -> None:
    """Each use says which extra is missing."""
    for extra, uses in USES.items():
        for number, use in enumerate(uses):
            try:
                use()
            except (ImportError, schedq.SchedqError) as error:
                if f"pip install 'schedq[{extra}]'" not in str(error):
                    raise AssertionError(f"use {number} of {extra} does not name the extra") from error
            else:
                raise AssertionError(f"use {number} of {extra} works without the extra")


def with_extra(extra: str) -> None:
    """Each use works, every module of the extra's package can be imported, and all its names are there."""
    for use in USES[extra]:
        use()
    package = importlib.import_module(f"schedq.{extra}")
    for name in package.__all__:
        assert getattr(package, name) is not None, name
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


if __name__ == "__main__":
    os.environ["PATH"] = ""  # a redis-server of the machine would stand in for the extra `embedded`
    if len(sys.argv) > 1:
        with_extra(sys.argv[1])
    else:
        every_name()
        without_extras()
