"""What a caller said of a new job, checked: ready to be sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from schedq import backoff as plans
from schedq.durability import Durability, checked_durability
from schedq.errors import UsageError
from schedq.ids import new_ids
from schedq.instants import duration_ms, instant_ms
from schedq.job import Options
from schedq.keys import checked_id
from schedq.operations import Argument
from schedq.payload import encode, size_of
from schedq.settings import Settings, checked_attempts

tracers: Final[list[Callable[[str, str, str], str]]] = []
"""What may have a word on where a job was made: from queue, id and payload text to the job's `trace`, '' for none."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A new job, checked and ready to send."""

    job_id: str
    text: str
    mode: str
    ms: int
    fields: tuple[Argument, ...]
    is_callers_id: bool
    durability: Durability

    def size(self) -> int:
        """Bytes that it takes in a request, roughly."""
        return size_of(self.text) + 128

    def args(self) -> tuple[Argument, ...]:
        """Its part of `enqueue.lua`'s arguments."""
        return (self.job_id, self.text, self.mode, self.ms, len(self.fields), *self.fields)


def prepare(queue: Settings, payload: Any, options: Options, job_id: str | None = None) -> Prepared:
    """Check a new job; `job_id` is a fresh id to use if the caller gave none.

    Raises:
        UsageError: something in it can't be meant; the message names it.
    """
    text = encode(payload, queue.max_payload)
    mode, ms = when(options.delay, options.run_at)
    is_callers_id = options.job_id is not None
    found = checked_id(options.job_id) if is_callers_id else job_id or new_ids()[0]
    durability = queue.durability if options.durability is None else checked_durability(options.durability)
    fields = _fields(options)
    for tracer in tracers:
        if trace := tracer(queue.name, found, text):
            fields += ("trace", trace)
    return Prepared(found, text, mode, ms, fields, is_callers_id, durability)


def when(delay: object, run_at: object) -> tuple[str, int]:
    """How scripts are told when: ('in', ms from now) or ('at', instant in ms).

    Raises:
        UsageError: both were given, or one makes no sense.
    """
    if delay is None and run_at is None:
        return "in", 0
    if run_at is None:
        return "in", duration_ms(delay, "delay")
    if delay is None:
        return "at", instant_ms(run_at, "run_at")
    raise UsageError(f"give delay or run_at, not both (got delay={delay!r} and run_at={run_at!r})")


def _fields(options: Options) -> tuple[Argument, ...]:
    fields: list[Argument] = []
    if options.max_attempts is not None:
        fields += ("max_attempts", checked_attempts(options.max_attempts))
    if options.backoff is not None:
        fields += ("backoff", plans.to_text(plans.checked_plan(options.backoff)))
    if options.timeout is not None:
        timeout = duration_ms(options.timeout, "timeout")
        if timeout == 0:
            raise UsageError("timeout must be more than 0")
        fields += ("timeout_ms", timeout)
    return tuple(fields)
