"""The demo's environment: a folder, a server, receivers and processes, all removed when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from schedq import embedded
from schedq.queue.queue import Queue

if TYPE_CHECKING:  # this needs the extra `demo`, and examples/ on sys.path
    from demo.receivers import Journal

HERE: Final = Path(__file__).parent
PICTURES: Final = HERE / "pictures"
EXAMPLES: Final = HERE.parent
CHECKOUT: Final = EXAMPLES.parent
QUEUE: Final = "demo"
VISIBILITY_MS: Final = 4000
GRACE_S: Final = 2
READY_WITHIN_S: Final = 30
SECRET: Final = "a secret that only the demo and its receiver share"  # noqa: S105
ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoError(Exception):
    """The demo can't continue; the message says why."""


@dataclass(frozen=True, slots=True)
class Child:
    """A process of the demo.

    Attributes:
        name: as shown on the screen.
        process: the process.
        log: the file with its output.
    """

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def owns(self, worker_id: str) -> bool:
        """Whether this process is the worker of that id, HOST-PID-RANDOM."""
        return f"-{self.process.pid}-" in worker_id

    def last_words(self, lines: int = 15) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Everything that the demo runs on.

    Attributes:
        queue: the queue of examples/app.py.
        pictures_out: where the application writes its pictures.
        webhooks, mails: what the receivers got.
        promoter, workers: the processes.
    """

    queue: Queue
    pictures_out: Path
    webhooks: Journal
    mails: Journal
    promoter: Child
    workers: tuple[Child, ...]

    def now_ms(self) -> int:
        """Redis's clock."""
        return self.queue.stats()["now_ms"]


@contextmanager
def set_up(refusals: Mapping[str, int]) -> Iterator[Sandbox]:
    """Start everything, and stop it again in any case; `refusals` configures the webhook receiver, by job id.

    Raises:
        DemoError: a process did not start.
    """
    with ExitStack() as exits:
        try:
            yield _built(exits, refusals)
        finally:
            # A second Ctrl-C would interrupt the cleanup and leave processes behind.
            for ending in ENDINGS:
                signal.signal(ending, signal.SIG_IGN)


def _built(exits: ExitStack, refusals: Mapping[str, int]) -> Sandbox:
    folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="schedq-demo-", ignore_cleanup_errors=True)))
    webhooks, mails = _receive(exits, refusals)
    os.environ |= {
        "SCHEDQ_REDIS_URL": f"embedded://{folder / 'redis'}",
        "PICTURES_OUT": str(folder / "pictures"),
        "VISIBILITY_MS": str(VISIBILITY_MS),
        # The children import schedq from the checkout, which need not be installed.
        "PYTHONPATH": os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH")))),
    }
    with _uninterrupted():
        exits.callback(embedded.stop_server, folder / "redis")
        embedded.ensure_server(folder / "redis")

    from demo.app import queue  # reads the environment, so not earlier

    exits.callback(queue.close)
    worker = ["worker", "demo.app:queue", "--no-promoter", f"--grace={GRACE_S}"]
    promoter = _started(exits, "promoter", ["promoter", QUEUE], folder)
    workers = tuple(_started(exits, name, worker, folder) for name in ("worker A", "worker B"))
    built = Sandbox(queue, folder / "pictures", webhooks, mails, promoter, workers)
    _await_ready(built)
    return built


def _receive(exits: ExitStack, refusals: Mapping[str, int]) -> tuple[Journal, Journal]:
    """Start the receivers and pass their addresses to the application through the environment."""
    from demo.receivers import Journal, MailSink, WebhookReceiver

    webhooks, mails = Journal(), Journal()
    receiver = exits.enter_context(WebhookReceiver(SECRET, webhooks, refusals=lambda key: refusals.get(key, 0)))
    sink = exits.enter_context(MailSink(mails))
    os.environ |= {
        "WEBHOOK_URL": receiver.url,
        "WEBHOOK_SECRET": SECRET,
        "SMTP_PORT": str(sink.port),
        # A proxy from the user's environment can't reach a receiver on this machine.
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }
    return webhooks, mails


def _started(exits: ExitStack, name: str, arguments: list[str], folder: Path) -> Child:
    log = folder / f"{name.replace(' ', '-')}.log"
    with log.open("wb") as output, _uninterrupted():
        process = subprocess.Popen(
            [sys.executable, "-m", "schedq", *arguments],
            cwd=EXAMPLES,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        exits.callback(_end, process)
    return Child(name, process, log)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C: a process that has started but is not yet registered for cleanup would be left behind."""
    came: list[int] = []
    before = {ending: signal.signal(ending, lambda number, _: came.append(number)) for ending in ENDINGS}
    try:
        yield
    finally:
        for ending, handler in before.items():
            signal.signal(ending, handler)
    if came:
        raise KeyboardInterrupt


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(GRACE_S + 3)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await_ready(built: Sandbox) -> None:
    """Wait until the workers have reported, so that the first delayed jobs don't wait for them."""
    until = time.monotonic() + READY_WITHIN_S
    while built.queue.stats()["workers"] < len(built.workers):
        check_alive((built.promoter, *built.workers))
        if time.monotonic() > until:
            raise DemoError(f"the workers did not start within {READY_WITHIN_S} s")
        time.sleep(0.05)


def check_alive(children: tuple[Child, ...]) -> None:
    """Check that the processes are still running.

    Raises:
        DemoError: a process ended unexpectedly.
    """
    for child in children:
        code = child.process.poll()
        if code is not None:
            raise DemoError(f"the {child.name} ended unexpectedly, exit code {code}:\n{child.last_words()}")
