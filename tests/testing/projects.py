"""Projects of users with tests of their own, which run in their own process, and the outcome of each test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent

SHOP = """
    from schedq import Queue, Snooze, UsageError, current_job

    # Made at import, as applications do. There is no such server: a test that reaches for it fails.
    queue = Queue("mail", redis="redis://nowhere.invalid:1/0", retry_for=0, durability="replicated")
    inspector = queue.inspector
    sent = []

    @queue.task
    def send(address: str, subject: str = "hello") -> str:
        sent.append(address)
        return address

    @queue.task
    async def remind(times: int) -> None:
        if times:
            await remind.options(delay=86400).aenqueue(times - 1)

    @queue.task
    def receipt(order: int) -> str:
        return send.options(delay=60).enqueue(f"order-{order}").id

    @queue.task(max_attempts=3)
    def flaky(failures: int) -> int:
        current_job().progress(current_job().attempts, 3)
        if current_job().attempts <= failures:
            raise ConnectionError("the bank is down")
        return current_job().attempts

    @queue.task
    def snoozes() -> None:
        raise Snooze(60)

    @queue.task
    def forever() -> None:
        forever.options(delay=60).enqueue()

    @queue.cron("0 9 * * *")
    def report() -> None:
        sent.append("report")
"""


def run(folder: Path, files: Mapping[str, str], command: Sequence[str], **environment: str) -> tuple[int, str]:
    """Write a project and run its tests; returns the exit code and what was printed."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text))
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "SCHEDQ_"))}
    found = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**variables, "TMPDIR": str(temporary), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    left = [path.name for path in temporary.iterdir() if path.name.startswith("schedq-test-")]
    return found.returncode, found.stdout + "".join(f"\nleft behind: {name}" for name in left)


def pytest_command(*options: str, plugins: Sequence[str] = ()) -> list[str]:
    """The command that runs a user's tests with our plugin and others, where every warning is an error."""
    loaded = [option for name in ("schedq.integrations.pytest", *plugins) for option in ("-p", name)]
    warnings = ["-W", "error", "-W", "ignore:Using `httpx` with"]  # of Starlette's test client
    return ["-m", "pytest", "-rA", *warnings, "-p", "no:cacheprovider", *loaded, *options]


def outcomes(output: str) -> dict[str, str]:
    """The outcome of each of pytest's tests: `test_x.py::test_y` -> PASSED."""
    return {name: word for word, name in re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", output, re.MULTILINE)}
