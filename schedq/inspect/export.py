"""Jobs as plain objects, for export to a file and import into a queue."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from schedq.errors import UsageError
from schedq.inspect.runs import is_of_run
from schedq.inspect.search import STATES
from schedq.model import backoff as plans
from schedq.model.checks import whole_number
from schedq.model.expiry import is_stored_expiry
from schedq.model.gates import stored_gate
from schedq.model.headers import stored_headers
from schedq.model.keys import checked_id
from schedq.model.lifecycle import DELAYED, FINISHED, PENDING
from schedq.model.payload import UnreadablePayload, decode, encode, size_of
from schedq.model.records import JobRecord
from schedq.model.runs import STEP, Memo, Run, RunWait
from schedq.model.settings import Settings, checked_attempts
from schedq.model.times import LAST_INSTANT_MS, LONGEST_MS
from schedq.model.unique import stored_unique
from schedq.transitions import Argument, Operation, RoundTrips
from schedq.transitions.enqueue import EncodedJob, refusal, store_each

_NUMBERS: Final = {
    "attempts": 1_000_000,
    "enqueued_at_ms": LAST_INSTANT_MS,
    "run_at_ms": LAST_INSTANT_MS,
    "timeout_ms": LONGEST_MS,
    "completed_ttl_ms": LONGEST_MS,
    "failed_ttl_ms": LONGEST_MS,
    "completed_at_ms": LAST_INSTANT_MS,
    "cancelled_at_ms": LAST_INSTANT_MS,
    "last_error_at_ms": LAST_INSTANT_MS,
}
"""The whole-number fields of an entry, and the largest value of each."""
_TEXTS: Final = (
    *("id", "state", "payload_text", "backoff", "expires", "last_error", "result_text"),
    *("unique", "unique_rule", "gate", "key"),
)
_KNOWN: Final = {*_TEXTS, *_NUMBERS, "payload", "result", "max_attempts", "headers", "record"}
_MOST_FIELDS: Final = 2000
_MOST_RECORD: Final = 8 * 1_048_576
"""Fields and bytes of the record of a run, its messages included."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import.

    Attributes:
        stored: how many new jobs were stored.
        existed: how many existed already with the same payload; nothing was changed.
        skipped: how many had finished and were not requested.
        refused: for each entry that was refused, its number from 0, and why.
    """

    stored: int = 0
    existed: int = 0
    skipped: int = 0
    refused: dict[int, str] = field(default_factory=dict)


def exported(record: JobRecord, state: str) -> dict[str, Any]:
    """A job as an entry. Its payload is `payload`, or `payload_text` if decoding would lose something."""
    fields = record.fields
    entry: dict[str, Any] = {"id": record.id, "state": state, **_json("payload", fields.get("payload"))}
    for name in _NUMBERS:
        text = str(record.run_at_ms) if name == "run_at_ms" and record.run_at_ms else fields.get(name, "")
        if text.isascii() and text.isdecimal() and int(text) <= _NUMBERS[name]:
            entry[name] = int(text)
    if record.max_attempts:
        entry["max_attempts"] = record.max_attempts
    if record.headers:
        entry["headers"] = dict(record.headers)
    names = ("backoff", "expires", "last_error", "unique", "unique_rule", "gate", "key")
    entry |= {name: fields[name] for name in names if fields.get(name)}
    if state not in FINISHED and (record_of_run := {name: fields[name] for name in fields if is_of_run(name)}):
        entry["record"] = record_of_run
    return entry | _json("result", fields.get("result"))


def import_jobs(queue: Settings, entries: Sequence[object], *, finished: bool) -> RoundTrips[Imported]:
    """Store entries that `exported` made: with their ids, delayed jobs until their due time.

    Each entry is checked completely before anything of it is stored. A job that was running when it was exported is
    stored as waiting. With `finished`, finished jobs are enqueued as new ones; otherwise they are skipped.
    """
    checked: dict[int, EncodedJob | None] = {}
    refused: dict[int, str] = {}
    for number, entry in enumerate(entries):
        try:
            checked[number] = prepared(queue, entry, finished=finished)
        except UsageError as error:
            refused[number] = str(error)
    jobs = {number: job for number, job in checked.items() if job is not None}
    if listed := [
        job.job_id for job in jobs.values() if _has_undos(job)
    ]:  # first: those that are not there are dropped
        pairs = [word for job_id in listed for word in (0, job_id)]
        yield [Operation("undos", None, (), ("ZADD", queue.keys.undos, *pairs), int)]
    words = yield from store_each(queue, list(jobs.values()))
    for (number, job), word in zip(jobs.items(), words, strict=True):
        if word not in ("STORED", "EXISTS"):
            refused[number] = str(refusal(queue, job, word))
    return Imported(
        words.count("STORED"), words.count("EXISTS"), len(checked) - len(jobs), dict(sorted(refused.items()))
    )


def _has_undos(job: EncodedJob) -> bool:
    """Whether it is a run with steps to undo."""
    fields = dict(zip(job.fields[::2], job.fields[1::2], strict=True))
    return Run.read(str(fields.get("run", ""))).undos > 0


def prepared(queue: Settings, entry: object, *, finished: bool) -> EncodedJob | None:
    """The job that an entry describes; None for a finished one that was not requested.

    Raises:
        UsageError: the entry is invalid; the message names what is wrong.
    """
    known = _checked(entry)
    job_id = checked_id(known.get("id"))
    state = known.get("state", DELAYED if "run_at_ms" in known else PENDING)
    if state not in STATES:
        raise UsageError(f"state must be one of {', '.join(STATES)}, got {state!r:.80}")
    if state == DELAYED and _waits_for_jobs(known):
        state = known["state"] = PENDING  # its batch is not imported with it: it looks at once, and makes it again
    text = _payload_text(queue, known)
    if state == DELAYED and "run_at_ms" not in known:
        raise UsageError("a delayed job needs run_at_ms")
    options = _options(known, is_new=state in FINISHED)
    if state in FINISHED and not finished:
        return None
    mode, ms = ("at", known["run_at_ms"]) if state == DELAYED else ("in", 0)
    if "unique" in known:
        mode += ":import:-"
    return EncodedJob(job_id, text, mode, ms, options, is_callers_id=True, durability=queue.durability)


def _checked(entry: object) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise UsageError(f"a job must be a JSON object, got {entry!r:.80}")
    if unknown := [str(name) for name in entry if name not in _KNOWN]:
        raise UsageError(f"there is no field {unknown[0]!r:.80}")
    for name in _TEXTS:
        if name in entry and not isinstance(entry[name], str):
            raise UsageError(f"{name} must be a text, got {entry[name]!r:.80}")
    for name, most in _NUMBERS.items():
        whole_number(name, entry.get(name, 0), 0, most)
    return dict(entry)


def _waits_for_jobs(known: dict[str, Any]) -> bool:
    record = known.get("record")
    waits = record.get("waits") if isinstance(record, dict) else None
    return isinstance(waits, str) and any(wait.group for wait in RunWait.read(waits))


def _payload_text(queue: Settings, known: dict[str, Any]) -> str:
    if ("payload" in known) == ("payload_text" in known):
        raise UsageError("it must have either a payload or a payload_text")
    if "payload" in known:
        return encode(known["payload"], queue.max_payload)
    text: str = known["payload_text"]
    try:
        decode(text)
    except UnreadablePayload as error:
        raise UsageError(f"payload_text: {error}") from error
    if size_of(text) > queue.max_payload:
        raise UsageError(f"payload_text is {size_of(text):,} bytes, more than max_payload={queue.max_payload:,}")
    return text


def _options(known: dict[str, Any], *, is_new: bool) -> tuple[Argument, ...]:
    if "max_attempts" in known:
        checked_attempts(known["max_attempts"])
    if "backoff" in known and plans.from_text(known["backoff"]) is None:
        raise UsageError(f"backoff is not in the form that schedq writes: {known['backoff']!r:.80}")
    if "expires" in known and not is_stored_expiry(known["expires"]):
        raise UsageError(f"expires is not in the form that schedq writes: {known['expires']!r:.80}")
    # A job that continues keeps its age and its attempts. The script writes its own values first, so these win.
    names = ("max_attempts", "backoff", "timeout_ms", *(() if is_new else ("attempts", "enqueued_at_ms", "expires")))
    given = [(name, known[name]) for name in names if known.get(name)]
    given += [(name, known[name]) for name in ("completed_ttl_ms", "failed_ttl_ms") if name in known]
    if headers := stored_headers(known.get("headers", {})):
        given.append(("headers", headers))
    if not is_new:
        given += _record(known.get("record", {}), keeps_waits=known.get("state") == DELAYED).items()
    if "unique" in known:
        given += stored_unique(known["unique"], known.get("unique_rule", ""))
    return (*chain.from_iterable(given), *stored_gate({}, known.get("gate"), known.get("key")))


def _record(found: object, *, keeps_waits: bool) -> dict[str, str]:
    """The record of a workflow's run, as fields of its job.

    Raises:
        UsageError: it is not in the form that schedq writes.
    """
    if not isinstance(found, dict) or not all(
        isinstance(text, str) and is_of_run(name) for name, text in found.items()
    ):
        raise UsageError(f"record must be an object of the fields of a run, got {found!r:.80}")
    if len(found) > _MOST_FIELDS or sum(map(size_of, found.values())) > _MOST_RECORD:
        raise UsageError(f"record has more than {_MOST_FIELDS:,} fields or {_MOST_RECORD:,} bytes")
    for name, text in found.items():
        if name.startswith(STEP) and Memo.read(text) is None:
            raise UsageError(f"record: {name} is not in the form that schedq writes: {text!r:.80}")
    return {name: text for name, text in found.items() if keeps_waits or name != "waits"}


def _json(name: str, text: str | None) -> dict[str, Any]:
    """A stored JSON text under its name, decoded if that loses nothing; {} if there is none."""
    if text is None:
        return {}
    with suppress(UnreadablePayload, UsageError):
        value = decode(text)
        if encode(value, max(1, size_of(text))) == text:
            return {name: value}
    return {f"{name}_text": text}
