"""Jobs as plain objects, to be written to a file and brought into a queue again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schedq import backoff as plans
from schedq.errors import UsageError
from schedq.instants import LAST_INSTANT_MS, LONGEST_MS
from schedq.job import JobRecord
from schedq.keys import checked_id
from schedq.lifecycle import DELAYED, FINISHED, PENDING
from schedq.operations import Argument, Flow
from schedq.operations.enqueue import refusal, store_each
from schedq.operations.filters import STATES
from schedq.operations.preparing import Prepared
from schedq.payload import UnreadablePayload, decode, encode, size_of
from schedq.settings import Settings, checked_attempts

_NUMBERS: Final = {
    "attempts": 1_000_000,
    "enqueued_at_ms": LAST_INSTANT_MS,
    "run_at_ms": LAST_INSTANT_MS,
    "timeout_ms": LONGEST_MS,
    "completed_at_ms": LAST_INSTANT_MS,
    "cancelled_at_ms": LAST_INSTANT_MS,
    "last_error_at_ms": LAST_INSTANT_MS,
}
"""Whole numbers that an entry may have, and the largest that each may be."""
_TEXTS: Final = ("id", "state", "payload_text", "backoff", "last_error", "result_text")
_KNOWN: Final = {*_TEXTS, *_NUMBERS, "payload", "result", "max_attempts"}


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of entries that were brought in.

    Attributes:
        stored: new jobs.
        existed: jobs that were there already, with the same payload; nothing was changed.
        skipped: finished ones, which were not asked for.
        refused: for others, the number of the entry, from 0, and why nothing of it was stored.
    """

    stored: int = 0
    existed: int = 0
    skipped: int = 0
    refused: dict[int, str] = field(default_factory=dict)


def exported(record: JobRecord, state: str) -> dict[str, Any]:
    """A job as an entry. Its payload is `payload`, or `payload_text` where that would not come back to the letter."""
    fields = record.fields
    entry: dict[str, Any] = {"id": record.id, "state": state, **_json("payload", fields.get("payload"))}
    for name in _NUMBERS:
        text = str(record.run_at_ms) if name == "run_at_ms" and record.run_at_ms else fields.get(name, "")
        if text.isascii() and text.isdecimal() and int(text) <= _NUMBERS[name]:
            entry[name] = int(text)
    if record.max_attempts:
        entry["max_attempts"] = record.max_attempts
    entry |= {name: fields[name] for name in ("backoff", "last_error") if fields.get(name)}
    return entry | _json("result", fields.get("result"))


def bring(queue: Settings, entries: Sequence[object], *, finished: bool) -> Flow[Imported]:
    """Store entries as `exported` makes them: to wait, under their ids, those that were delayed until their instant.

    Each is checked whole before anything of it is stored. What ran when it was exported waits. With `finished` those
    that had finished wait too, as if new; else they are skipped.
    """
    jobs: dict[int, Prepared] = {}
    refused: dict[int, str] = {}
    skipped = 0
    for number, entry in enumerate(entries):
        try:
            job = prepared(queue, entry, finished=finished)
        except UsageError as error:
            refused[number] = str(error)
            continue
        if job is None:
            skipped += 1
        else:
            jobs[number] = job
    words = yield from store_each(queue, list(jobs.values()))
    for (number, job), word in zip(jobs.items(), words, strict=True):
        if word not in ("STORED", "EXISTS"):
            refused[number] = str(refusal(queue, job, word))
    return Imported(words.count("STORED"), words.count("EXISTS"), skipped, dict(sorted(refused.items())))


def prepared(queue: Settings, entry: object, *, finished: bool) -> Prepared | None:
    """The job that an entry describes; None for one that has finished and is not asked for.

    Raises:
        UsageError: it is no entry; the message names what is wrong.
    """
    known = _checked(entry)
    job_id = checked_id(known.get("id"))
    state = known.get("state", DELAYED if "run_at_ms" in known else PENDING)
    if state not in STATES:
        raise UsageError(f"state must be one of {', '.join(STATES)}, got {state!r:.80}")
    text = _payload_text(queue, known)
    if state == DELAYED and "run_at_ms" not in known:
        raise UsageError("a delayed job needs run_at_ms")
    options = _options(known, is_new=state in FINISHED)
    if state in FINISHED and not finished:
        return None
    mode, ms = ("at", known["run_at_ms"]) if state == DELAYED else ("in", 0)
    return Prepared(job_id, text, mode, ms, options, is_callers_id=True, durability=queue.durability)


def _checked(entry: object) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise UsageError(f"a job must be a JSON object, got {entry!r:.80}")
    if unknown := [str(name) for name in entry if name not in _KNOWN]:
        raise UsageError(f"there is no field {unknown[0]!r:.80}")
    for name in _TEXTS:
        if name in entry and not isinstance(entry[name], str):
            raise UsageError(f"{name} must be a text, got {entry[name]!r:.80}")
    for name, most in _NUMBERS.items():
        value = entry.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise UsageError(f"{name} must be a whole number of 0 to {most}, got {value!r:.80}")
    return entry


def _payload_text(queue: Settings, known: dict[str, Any]) -> str:
    if ("payload" in known) == ("payload_text" in known):
        raise UsageError("it must have a payload, or else a payload_text")
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
    options: list[Argument] = []
    if "max_attempts" in known:
        options += ("max_attempts", checked_attempts(known["max_attempts"]))
    if "backoff" in known:
        if plans.from_text(known["backoff"]) is None:
            raise UsageError(f"backoff is none that schedq writes: {known['backoff']!r:.80}")
        options += ("backoff", known["backoff"])
    if known.get("timeout_ms"):
        options += ("timeout_ms", known["timeout_ms"])
    # What goes on where it was keeps its age and its attempts; the script's own values come before these.
    for name in () if is_new else ("attempts", "enqueued_at_ms"):
        if known.get(name):
            options += (name, known[name])
    return tuple(options)


def _json(name: str, text: str | None) -> dict[str, Any]:
    """A stored JSON text under its name, decoded if that loses nothing; nothing if there is none."""
    if text is None:
        return {}
    try:
        value = decode(text)
        if encode(value, max(1, size_of(text))) == text:
            return {name: value}
    except (UnreadablePayload, UsageError):
        pass
    return {f"{name}_text": text}
