"""`schedq archive`: copies finished jobs to files, page by page, and continues where it stopped."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from schedq.cli import daemon
from schedq.cli.archive.files import QueueFolder
from schedq.cli.params import DURATION, redis_option
from schedq.cli.queue_argument import queues_argument
from schedq.cli.queues import all_queues, must_be_known, open_queue, wrong_usage
from schedq.cli.state_file import locked
from schedq.errors import Conflict, SchedqError
from schedq.inspect.archive import ArchivePage, archive_page
from schedq.logs import log
from schedq.model.settings import RETRY_S
from schedq.queue.queue import Queue

_EVERY: Final = timedelta(seconds=5)
_LEAST: Final = timedelta(milliseconds=100)
_LONGEST_WAIT_S: Final = 60.0


@click.command(
    epilog="""\b
Examples:
  schedq archive --to /var/lib/schedq/archive
  schedq archive emails orders --to ./archive --once""",
    no_args_is_help=True,
)
@queues_argument
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    required=True,
    help="Where the files go: FOLDER/QUEUE/2030-01-31.jsonl, a day in UTC.",
)
@click.option(
    "--once", is_flag=True, help="Write what there is and exit; 1 if some of a log was lost or can't be read."
)
@click.option(
    "--every",
    type=DURATION,
    default=_EVERY,
    metavar="D",
    help="How long to wait once there is nothing new.  [default: 5s]",
)
@redis_option
@daemon.log_options
def archive(names: tuple[str, ...], folder: Path, once: bool, every: timedelta, redis_url: str | None) -> None:
    """Write the jobs that finish in the queues NAME, or in all of them, to files of JSON lines.

    It follows the log of each queue from a stored position, so each end of a job is written at least once, whatever
    is interrupted. If the log was trimmed before it was read, a warning says so, and a line in QUEUE/gaps.log.
    SIGTERM and Ctrl-C stop it.
    """
    daemon.handle_signals()
    if every < _LEAST:
        raise click.UsageError("--every must be at least 100ms")
    stopped = threading.Event()
    with locked(folder / "archive", "schedq archive"), ExitStack() as open_queues:
        archiver = _Archiver(redis_url, names, folder, open_queues)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        if once:
            for name in names:
                with open_queue(name, redis_url) as queue:
                    must_be_known(queue, redis_url)
            if not archiver.catch_up(stopped):
                raise click.exceptions.Exit(1)
            return
        archiver.follow(every.total_seconds(), stopped)


@dataclass
class _Archiver:
    """Reads the logs and writes the files.

    Attributes:
        names: of the queues; empty for all that there are.
        open_queues: closes the connections at the end.
    """

    redis_url: str | None
    names: tuple[str, ...]
    folder: Path
    open_queues: ExitStack
    _queues: dict[str, tuple[Queue, QueueFolder]] = field(default_factory=dict)
    _warnings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._directory = self.open_queues.enter_context(all_queues(self.redis_url))
        for name in self.names:
            self._open(name)

    def follow(self, every_s: float, stopped: threading.Event) -> None:
        """Catch up again and again; what fails is tried again, later each time, up to a minute."""
        wait_s, label = every_s, self._directory.address.label
        log.info("archive: ready for %s, files go to %s", label, str(self.folder))
        while not stopped.is_set():
            try:
                self.catch_up(stopped)
                wait_s = every_s
            except (SchedqError, OSError) as error:
                wait_s = min(_LONGEST_WAIT_S, 2 * wait_s)
                log.warning("archive: %s; again in %.0f s, nothing is skipped", error, wait_s)
            _wait(stopped, wait_s)

    def catch_up(self, stopped: threading.Event) -> bool:
        """Read every log to its end; False if some of one was lost, or can't be read.

        Raises:
            SchedqError: Redis does not respond, or refuses.
            OSError: a file can't be written.
        """
        is_whole = True
        for name in self.names or self._directory.list_queues():
            try:
                is_whole = self._catch_up_with(name, stopped) and is_whole
            except Conflict as error:  # a damaged key of one queue is no reason to leave out the others
                is_whole = False
                self._warn_once(name, str(error))
        return is_whole

    def _catch_up_with(self, name: str, stopped: threading.Event) -> bool:
        queue, files = self._open(name)
        with suppress(Conflict):  # nor are damaged settings
            queue.load_settings()
        if queue.settings.log_size == 0:
            self._warn_once(name, "it writes no log, since its log_size is 0")
        is_whole, is_last = True, False
        while not (is_last or stopped.is_set()):
            page: ArchivePage = queue._drive(archive_page(queue.settings, files.position))
            is_last = page.is_last
            if page.gap is not None:
                is_whole = False
                log.warning(
                    "archive: the log of queue %s was lost after entry %s and before %s: raise its log_size",
                    *(name, page.gap.after, page.gap.before),
                )
            files.write(page)
            if page.lines:
                log.info("archive: %d ends of jobs of queue %s written", len(page.lines), name)
        return is_whole

    def _warn_once(self, name: str, why: str) -> None:
        if self._warnings.get(name) != why:
            self._warnings[name] = why
            log.warning("archive: queue %s: %s", name, why)

    def _open(self, name: str) -> tuple[Queue, QueueFolder]:
        if name not in self._queues:
            files = QueueFolder(self.folder / name)
            with wrong_usage():
                queue = Queue.for_operator(name, redis=self.redis_url, retry_for=RETRY_S)
            self._queues[name] = self.open_queues.enter_context(queue), files
        return self._queues[name]


def _wait(stopped: threading.Event, seconds: float) -> None:
    while seconds > 0 and not stopped.wait(min(seconds, 1.0)):  # a longer wait blocks signal handlers on some platforms
        seconds -= 1.0
