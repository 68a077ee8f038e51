"""`schedq watch`: runs the doctor again and again, and sends a notice when a finding appears or goes."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from schedq.cli import daemon
from schedq.cli.params import DURATION, option_group, redis_option
from schedq.cli.queue_argument import queues_argument
from schedq.cli.queues import all_queues, open_queue, warn_if_unknown, wrong_usage
from schedq.cli.state_file import default_folder, locked, replace_file
from schedq.doctor.checks import LEVELS
from schedq.doctor.examination import REFUSES, SAMPLE, Report, examine
from schedq.doctor.notices import AUTHORIZATION, LIMIT_S, DeliveryError, NoticeProgram, Receiver, Webhook
from schedq.doctor.watching import TrackedFinding, Watch, WatchState
from schedq.errors import SchedqError
from schedq.logs import log
from schedq.model.times import span

_EVERY: Final = timedelta(seconds=30)
_LEAST: Final = timedelta(seconds=1)
_LONGEST_LIMIT: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class ReceiverOptions:
    """Where notices go, as a user gave it."""

    webhook: str | None = None
    command: str | None = None
    limit: timedelta = timedelta(seconds=LIMIT_S)

    def made(self) -> Receiver:
        """The receiver.

        Raises:
            click.UsageError: there is none, there are two, or it is invalid.
        """
        if not timedelta(0) < self.limit <= _LONGEST_LIMIT:
            raise click.UsageError("--limit must be more than 0 and at most 10m")
        with wrong_usage():
            if self.webhook is not None and self.command is None:
                return Webhook(self.webhook, os.environ.get(AUTHORIZATION, ""), self.limit.total_seconds())
            if self.command is not None and self.webhook is None:
                return NoticeProgram(self.command, self.limit.total_seconds())
        raise click.UsageError("give either --webhook URL or --exec COMMAND")


@click.command(
    epilog="""\b
Examples:
  schedq watch --webhook https://alerts.example.org/schedq
  schedq watch emails --every 10s --exec 'python notify.py'
  schedq watch --level note --ignore snapshots-only --exec ./page-me --state /var/lib/schedq/watch.json""",
    no_args_is_help=True,
)
@queues_argument
@option_group(
    "target",
    ReceiverOptions,
    click.option(
        "--webhook",
        metavar="URL",
        help=f"Post each notice to this URL, with the header Authorization from {AUTHORIZATION}, if that is set.",
    ),
    click.option(
        "--exec", "command", metavar="COMMAND", help="Start this program for each notice, which reads it from stdin."
    ),
    click.option(
        "--limit",
        type=DURATION,
        default=timedelta(seconds=LIMIT_S),
        metavar="D",
        help="How long sending one notice may take; then it has failed.  [default: 10s]",
    ),
)
@click.option(
    "--every", type=DURATION, default=_EVERY, metavar="D", help="How long from one look to the next.  [default: 30s]"
)
@click.option(
    "--level",
    type=click.Choice(list(LEVELS)),
    default="warning",
    show_default=True,
    help="Send notices about findings of this level and of worse ones.",
)
@click.option("--ignore", "ignored", multiple=True, metavar="CODE", help="No notices of this code; repeatable.")
@click.option(
    "--state",
    "state_path",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to keep what was reported; by default a file in ~/.local/state/schedq.",
)
@click.option("--once", is_flag=True, help="Look once, send what is to be sent, and exit; 1 if a notice failed.")
@redis_option
@daemon.log_options
def watch(
    names: tuple[str, ...],
    target: ReceiverOptions,
    every: timedelta,
    level: str,
    ignored: tuple[str, ...],
    state_path: Path | None,
    once: bool,
    redis_url: str | None,
) -> None:
    """Run the doctor on the queues NAME, or on all of them, and send a notice when a finding appears or goes.

    A notice is one JSON object. One that fails is sent again, after 5 s at first and every 5 min at last, also after a
    restart. There is at most one notice a minute about the same finding. A Redis that is down is a finding too.
    SIGTERM and Ctrl-C stop it.
    """
    daemon.handle_signals()
    receiver = target.made()
    if every < _LEAST:
        raise click.UsageError("--every must be at least 1s")
    with all_queues(redis_url) as queue:
        label = queue.address.label
    path = state_path or default_folder() / f"watch-{_digest(label, *sorted(names))}.json"
    with locked(path, "schedq watch"):
        wanted = LEVELS[: LEVELS.index(level) + 1]
        state = _StateOnDisk(path)
        watcher = _Watcher(redis_url, label, names, receiver, Watch(state.read(), wanted, ignored), state)
        if once:
            watcher.look()
            if not watcher.deliver():
                raise click.exceptions.Exit(1)
            return
        stopped = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        _warn_about_names(names, redis_url)
        log.info("watch: ready for %s, every %g s, notices go to %s", label, every.total_seconds(), receiver.label)
        watcher.run(every.total_seconds(), stopped)


def _digest(*words: str) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:12]


def _warn_about_names(names: tuple[str, ...], redis_url: str | None) -> None:
    for name in names:
        with suppress(SchedqError), open_queue(name, redis_url) as queue:  # the examination reports what is wrong
            warn_if_unknown(queue, redis_url)


class _StateOnDisk:
    """The file with what has to survive a restart."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_failing = False

    def read(self) -> WatchState:
        """What was stored; nothing if the file is missing. A damaged one is kept under another name.

        Raises:
            click.ClickException: it can't be read.
        """
        try:
            return WatchState.from_json(self._path.read_bytes())
        except FileNotFoundError:
            return WatchState()
        except ValueError as error:
            with suppress(OSError):
                os.replace(self._path, self._path.with_name(f"{self._path.name}.damaged"))
            log.warning("watch: %s is damaged (%s): every finding is reported again", str(self._path), error)
            return WatchState()
        except OSError as error:
            raise click.ClickException(f"{self._path} can't be read: {error}") from error

    def write(self, state: WatchState) -> bool:
        """Store it; False if that is not possible now, which is logged when it begins."""
        try:
            replace_file(self._path, state.to_json())
        except OSError as error:
            if not self._is_failing:
                log.error("watch: %s can't be written (%s): a restart would repeat notices", str(self._path), error)
            self._is_failing = True
            return False
        self._is_failing = False
        return True


@dataclass
class _Watcher:
    """Looks, delivers, and waits."""

    redis_url: str | None
    label: str
    names: tuple[str, ...]
    receiver: Receiver
    watch: Watch
    state: _StateOnDisk

    def run(self, every_s: float, stopped: threading.Event) -> None:
        """Look every so many seconds, and deliver notices when they are due, until it is stopped."""
        next_look = time.monotonic()
        while not stopped.is_set():
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + every_s
                self.look()
            self.deliver(stopped)
            wait_s = next_look - time.monotonic()
            if (due_s := self.watch.next_s()) is not None:
                wait_s = min(wait_s, due_s - time.time())
            # On some platforms, a wait without a short timeout blocks signal handlers.
            stopped.wait(max(0.01, min(wait_s, 1.0)))

    def look(self) -> None:
        """Examine once."""
        try:
            report = examine(self.redis_url, self.names, sample=SAMPLE)
        except SchedqError as error:  # whatever the server does, the next look may succeed
            report = Report(self.label, [REFUSES.finding(error)])
        self.watch.look(report, time.time())
        self._save()

    def deliver(self, stopped: threading.Event | None = None) -> bool:
        """Send the notices that are due; False if one failed."""
        is_whole = True
        for tracked in self.watch.due(time.time()):
            if stopped is not None and stopped.is_set():
                break
            try:
                self._send(tracked)
            except DeliveryError as error:
                is_whole = False
                wait_s = self.watch.note_failure(tracked, time.time())
                words = tracked.notice.words if tracked.notice else ""
                log.warning("notice: %s: not sent: %s; again in %s", words, error, span(round(wait_s * 1000)))
                if error.is_general:
                    self._put_off(wait_s)
                    break
        self._save()
        return is_whole

    def _send(self, tracked: TrackedFinding) -> None:
        notice = tracked.notice
        assert notice is not None
        self.receiver.send(json.dumps(notice.content, separators=(",", ":")).encode() + b"\n")
        log.info("notice: %s: sent to %s", notice.words, self.receiver.label)
        self.watch.note_delivery(tracked, time.time())
        self._save()

    def _put_off(self, wait_s: float) -> None:
        """The receiver can't be reached: the other notices wait too, instead of a timeout for each."""
        until_s = time.time() + wait_s
        for other in self.watch.due(time.time()):
            if other.notice is not None:
                other.notice.next_s = until_s

    def _save(self) -> None:
        if self.watch.has_changed and self.state.write(self.watch.state):
            self.watch.has_changed = False
