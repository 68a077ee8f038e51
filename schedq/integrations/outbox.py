"""The relay of an outbox: enqueues the jobs that committed transactions have written to a table."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from schedq.background.feeders import FEEDERS
from schedq.background.reconnecting_client import LogThrottle
from schedq.errors import UsageError
from schedq.inspect import audit, stats
from schedq.logs import log
from schedq.model.durability import checked_durability
from schedq.model.expiry import check_due_in_time
from schedq.model.keys import checked_id
from schedq.model.settings import Settings
from schedq.model.times import Duration, duration_ms, monotonic, wall_ns
from schedq.queue.job import Job
from schedq.queue.queue import Queue
from schedq.queue.task import Task
from schedq.transitions import RoundTrips, announce, enqueue, unwrap
from schedq.transitions.enqueue import MOST_IDS, EncodedJob

MOST_KEY: Final = 200
"""The most characters of an order key."""
_EXACT: Final = re.compile(r"[a-z0-9_./:@-]+")
"""Order keys that MariaDB and MySQL compare like Python."""
_MODE: Final = re.compile(r"(in|at)(:(create|reuse)?:\w+)?")
_REPORT_S: Final = 10
_SKEW_MS: Final = 5_000
"""The most by which the clocks of relays and Redis may differ."""
_LOOKED: Final = 1000
_UNCLEAR: Final = "sending was interrupted, and nothing shows whether the job was stored"
Execute = Callable[[str, Mapping[str, Any]], Sequence[Sequence[Any]]]
"""Runs SQL with parameters like `:name` in a transaction, and returns the rows."""
Transaction = Callable[[Callable[[Execute], Any]], Any]
"""Calls a function in a transaction that can write; commits it, or rolls it back if the function raises."""


class Row(NamedTuple):
    """A row that was not sent yet."""

    seq: int
    job_id: str
    queue: str
    order_key: str | None
    payload: str
    options: str
    started_at_ms: int | None

    def job(self) -> EncodedJob:
        """The job to send. Its id counts as the caller's, so that an existing job is found.

        Raises:
            ValueError, LookupError, TypeError, UsageError: the id or the options are damaged.
        """
        it = json.loads(self.options)
        mode, ms, fields, durability = (it[name] for name in ("mode", "ms", "fields", "durability"))
        is_whole = isinstance(ms, int) and len(fields) % 2 == 0 and all(isinstance(each, (str, int)) for each in fields)
        if not is_whole or _MODE.fullmatch(mode) is None:
            raise ValueError(f"{self.options:.200}")
        own_id, checked = checked_id(self.job_id), checked_durability(durability)
        return EncodedJob(own_id, self.payload, mode, ms, (*fields,), is_callers_id=True, durability=checked)


def new_row(
    task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], order_key: str | None
) -> tuple[dict[str, Any], Job[Any]]:
    """The columns of a new row, and its job. Delays count from now, so they become instants.

    Raises:
        UsageError: the arguments, an option or the order key is invalid.
    """
    check_order_key(order_key)
    queue, encoded, job = task.prepare(args, kwargs)
    return row_of(queue, encoded, order_key), job


def check_order_key(key: object) -> None:
    """Refuse what can't be an order key.

    Raises:
        UsageError: it is no text, or too long.
    """
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= MOST_KEY):
        raise UsageError(f"an order key must be a text of 1 to {MOST_KEY} characters, got {key!r:.250}")


def exact_key(key: str) -> str:
    """Return what MariaDB and MySQL store for an order key: the key, or its hash if they could take it for another.

    They ignore capitals, accents and trailing spaces of text.
    """
    return key if _EXACT.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()


def row_of(queue: Settings, encoded: EncodedJob, order_key: str | None) -> dict[str, Any]:
    """The columns of a new row for a job that has been checked."""
    now, mode, ms, fields = _now_ms(queue), encoded.mode, encoded.ms, [*encoded.fields]
    if mode.startswith("in") and ms:
        mode, ms = f"at{mode[2:]}", now + ms
    for at in range(0, len(fields), 2):
        if fields[at] == "expires" and (text := str(fields[at + 1])).startswith("+"):
            fields[at + 1] = str(now + int(text))
        if fields[at] == "expires" and mode.startswith("at"):
            check_due_in_time(str(fields[at + 1]), "at", ms)
    options = json.dumps({"mode": mode, "ms": ms, "fields": fields, "durability": encoded.durability})
    row = {"job_id": encoded.job_id, "queue": queue.name, "order_key": order_key, "payload": encoded.text}
    return {**row, "options": options, "created_at_ms": now}


def _now_ms(queue: Settings) -> int:
    return wall_ns() // 1_000_000 if queue.clock is None else int(queue.clock() * 1000)


class Relay:
    """Enqueues what committed transactions have put in an outbox, deletes sent rows, and reports its lag to Redis.

    It may be killed at any moment. Several relays share the rows of one table.

    Args:
        queues: the queues whose rows it sends.
        transaction: runs a function in a transaction.
        table: the name of the table.
        has_row_locks: whether the database has `FOR UPDATE SKIP LOCKED`.
        poll: seconds or a timedelta between two looks at the table.
        keep: seconds or a timedelta until a sent row is deleted.
        label: what reports and the log call it; by default the name of the table.
        close: called by the thread of `run` at its end.
    """

    def __init__(
        self,
        queues: Sequence[Queue],
        transaction: Transaction,
        table: str,
        *,
        has_row_locks: bool,
        poll: Duration = 0.5,
        keep: Duration = 86_400,
        label: str = "",
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self._queues = {queue.name: queue for queue in queues}
        if apart := {it.name for it in queues if it.address.label != self._queues[it.name].address.label}:
            raise UsageError(f"a row names only its queue, and {min(apart)!r} is on two servers: give one another name")
        if not self._queues:
            raise UsageError("a relay needs the queues whose jobs it sends")
        self._transaction, self._table, self._has_row_locks = transaction, table, has_row_locks
        self._poll_s, self._keep_ms = duration_ms(poll, "poll") / 1000, duration_ms(keep, "keep")
        self._label, self._close = label or table, close
        self._stopped = threading.Event()
        self._sending = threading.Lock()
        self._reported_at = 0.0
        self._throttle = LogThrottle()

    def send(self) -> int:
        """Send all rows that are ready, and return how many.

        Raises:
            SchedqError: Redis is unavailable or refuses. The rows stay. Errors of the database are raised unchanged.
        """
        sent = 0
        with self._sending:  # a burst must not end while another thread sends
            while True:
                for queue in self._queues.values():  # no transaction must wait for a Redis that is down
                    queue.connections.blocking.ask(stats.reach(queue.settings))
                self._transaction(self._start)
                settled, count = self._transaction(self._send)
                sent += int(count)
                if not settled:
                    return sent

    def run(self) -> None:
        """Send rows until `stop` is called. Errors are logged, and the work continues."""
        log.info("outbox %s: relay for %s", self._label, ", ".join(self._queues))
        while not self._stopped.is_set():
            try:
                self.send()
                if monotonic() - self._reported_at >= _REPORT_S:
                    self._transaction(self._report)
                    self._reported_at = monotonic()
            except Exception as error:  # noqa: BLE001 - each database has errors of its own
                self._throttle.log(f"outbox {self._label}", error)
            self._stopped.wait(self._poll_s)
        self._close()

    def stop(self) -> None:
        """Let `run` return, from any thread."""
        self._stopped.set()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run in a thread of this process, as a lifespan of a queue or of a web application."""
        self._stopped.clear()
        self._reported_at = 0.0
        thread = threading.Thread(target=self.run, name="schedq-relay", daemon=True)
        thread.start()
        FEEDERS.add(self._feed)
        try:
            yield
        finally:
            FEEDERS.discard(self._feed)
            self.stop()
            thread.join()

    def _feed(self) -> None:
        """Send all rows that are ready, in a thread that does nothing else with the database; log errors."""
        try:
            self.send()
        except Exception as error:  # noqa: BLE001 - as in `run`
            self._throttle.log(f"outbox {self._label}", error)
        finally:
            self._close()

    def _start(self, execute: Execute) -> None:
        """Note that rows may be sent from now on. It commits first, so that a later relay knows of it."""
        ready = self._find(execute, "IS NULL")
        for name, queue in self._queues.items():
            self._update(execute, [it.seq for it in ready if it.queue == name], started_at_ms=_now_ms(queue.settings))

    def _send(self, execute: Execute) -> tuple[int, int]:
        """Send rows and mark them in the transaction that has locked them; return how many are settled and sent."""
        ready, settled, sent = self._find(execute, "IS NOT NULL"), 0, 0
        for name, queue in self._queues.items():
            now, client = _now_ms(queue.settings), queue.connections.blocking
            outcomes = dict[int, str]()  # '' for sent, or why it is held
            fresh, blocked = list[tuple[Row, EncodedJob]](), set[str | None]()
            for row in [row for row in ready if row.queue == name]:
                try:
                    job = row.job()
                except (ValueError, LookupError, TypeError, UsageError) as error:
                    outcomes[row.seq] = f"its id or its options can't be read: {error}"
                    blocked.add(row.order_key)
                    continue
                stored = client.drive(_was_stored(queue.settings, row, job, now))
                if stored is None:
                    outcomes[row.seq] = _UNCLEAR
                    blocked.add(row.order_key)
                elif stored:
                    outcomes[row.seq] = ""
                elif row.order_key is None or row.order_key not in blocked:
                    fresh.append((row, job))
            self._enqueue(execute, queue, fresh, outcomes)
            done = [seq for seq, why in outcomes.items() if not why]
            self._update(execute, done, sent_at_ms=now)
            for seq, why in outcomes.items():
                if why:
                    self._update(execute, [seq], held=why)
                    log.error("outbox %s: row %d is held: %s", self._label, seq, why)
            settled, sent = settled + len(outcomes), sent + len(done)
        return settled, sent

    def _enqueue(
        self, execute: Execute, queue: Queue, jobs: Sequence[tuple[Row, EncodedJob]], outcomes: dict[int, str]
    ) -> None:
        at_once = 1 if queue.settings.max_pending else MOST_IDS  # a queue that becomes full must not change the order
        for first in range(0, len(jobs), at_once):
            some = jobs[first : first + at_once]
            trips = enqueue.store_each(queue.settings, [job for _, job in some])
            for (row, job), word in zip(some, queue.connections.blocking.drive(trips), strict=True):
                if word == "FULL":
                    self._update(execute, [row.seq for row, _ in jobs[first:]], started_at_ms=None)
                    return
                is_stored = enqueue.is_accepted(word)
                outcomes[row.seq] = "" if is_stored else str(enqueue.refusal(queue.settings, job, word))

    def _report(self, execute: Execute) -> None:
        where = f"FROM {self._table} WHERE sent_at_ms"
        counts = {
            row[0]: row[1:]
            for row in execute(
                f"SELECT queue, count(*), min(created_at_ms), count(held) {where} IS NULL GROUP BY queue",
                {},
            )
        }
        for name, queue in self._queues.items():
            now = _now_ms(queue.settings)
            unsent, oldest, held = counts.get(name, (0, 0, 0))
            facts = {"unsent": unsent, "oldest_ms": oldest, "held": held, "at_ms": now}
            queue.connections.blocking.ask(announce.report_outbox(queue.settings, self._label, json.dumps(facts)))
        old = execute(f"SELECT seq {where} < :before LIMIT 1000", {"before": now - self._keep_ms})
        if old:
            execute(f"DELETE FROM {self._table} WHERE seq IN ({_listed([row[0] for row in old])})", {})  # noqa: S608

    def _find(self, execute: Execute, started: str) -> list[Row]:
        """Lock the first unsent rows that no other transaction has locked, except those that must wait for others."""
        it = self._table
        if not self._has_row_locks:  # SQLite: take the lock for writing before reading
            execute(f"UPDATE {it} SET held = held WHERE seq = -1", {})  # noqa: S608 - the table's own name
        found = execute(
            f"SELECT {', '.join(Row._fields)} FROM {it} WHERE sent_at_ms IS NULL AND held IS NULL "  # noqa: S608
            f"AND started_at_ms {started} AND queue IN ({', '.join(map(repr, self._queues))}) "
            f"AND (order_key IS NULL OR order_key NOT IN (SELECT order_key FROM {it} WHERE sent_at_ms IS NULL "
            "AND held IS NOT NULL AND order_key IS NOT NULL)) "
            f"ORDER BY seq LIMIT {MOST_IDS}{' FOR UPDATE SKIP LOCKED' if self._has_row_locks else ''}",
            {},
        )
        rows = [Row(*row) for row in found]
        keys = {f"k{at}": row.order_key for at, row in enumerate(rows) if row.order_key is not None}
        if not keys:
            return rows
        first_unsent = execute(
            f"SELECT order_key, min(seq) FROM {it} WHERE sent_at_ms IS NULL "  # noqa: S608
            f"AND order_key IN ({', '.join(f':{name}' for name in keys)}) "
            f"AND seq NOT IN ({_listed([row.seq for row in rows])}) GROUP BY order_key",
            keys,
        )
        waiting: dict[str | None, int] = {key: seq for key, seq in first_unsent}  # noqa: C416 - rows are no tuples
        return [row for row in rows if row.seq < waiting.get(row.order_key, row.seq + 1)]

    def _update(self, execute: Execute, seqs: Sequence[int], **values: int | str | None) -> None:
        if seqs:
            ((name, value),) = values.items()
            execute(f"UPDATE {self._table} SET {name} = :value WHERE seq IN ({_listed(seqs)})", {"value": value})  # noqa: S608


def _listed(seqs: Sequence[int]) -> str:
    return ", ".join(str(int(seq)) for seq in seqs)


def _was_stored(queue: Settings, row: Row, job: EncodedJob, now_ms: int) -> RoundTrips[bool | None]:
    """Whether the job of a row that some relay began to send was stored, and no relay noted it; None if unclear.

    For half of the time for which its record is kept at least, the result is False: to send it again finds the job.
    """
    own = dict(zip(job.fields[::2], job.fields[1::2], strict=True))
    failed_ms = float("inf") if queue.failed_ttl is None else queue.failed_ttl * 1000
    completed_ms = queue.completed_ttl * 1000
    ttl_ms = min(float(own.get("completed_ttl_ms", completed_ms)), float(own.get("failed_ttl_ms", failed_ms)))
    age_ms = now_ms - (row.started_at_ms or now_ms)
    if age_ms <= min(ttl_ms, queue.min_keep * 1000) / 2:
        return False
    replies = yield [stats.get_job(queue, row.job_id), audit.log(queue, None, _LOOKED), stats.stats(queue)]
    record, entries, facts = map(unwrap, replies)
    if record is not None or any(entry.id == row.job_id for entry in entries):
        return True
    is_logged = len(entries) < min(queue.log_size, _LOOKED) or (
        entries[:1] and entries[0].at_ms < now_ms - age_ms - _SKEW_MS
    )
    is_trimmed = facts.trimmed_total or max(facts.failed_depth, facts.cancelled_depth) >= queue.failed_history >= 0
    return False if is_logged or (age_ms <= ttl_ms / 2 and not is_trimmed) else None
