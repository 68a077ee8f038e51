"""What a caller said of a new job, checked: ready to be sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from schedq import backoff as plans
from schedq.durability import Durability, checked_durability
from schedq.errors import UsageError
from schedq.ids import new_ids, new_request
from schedq.instants import checked_timeout, duration_ms, instant_ms
from schedq.job import NewJob, Options
from schedq.keys import checked_id
from schedq.operations import Argument
from schedq.payload import encode, size_of
from schedq.settings import Settings, checked_attempts

tracers: Final[list[Callable[[str, str, str], str]]] = []
"""What may have a word on where a job was made: from queue, id and payload text to the job's `trace`, '' for none."""


class Prepared(NamedTuple):
    """A new job, checked and ready to send."""

    job_id: str
    text: str
    mode: str
    ms: int
    fields: tuple[Argument, ...]
    is_callers_id: bool
    durability: Durability

    @property
    def wish(self) -> str:
        """What is to become of a job that has the id: 'create', 'reuse', or '' to go by its payload."""
        return self.mode.partition(":")[2].partition(":")[0]

    def size(self) -> int:
        """Bytes that it takes in a request, roughly."""
        return size_of(self.text) + 128

    def args(self) -> tuple[Argument, ...]:
        """Its part of `enqueue.lua`'s arguments."""
        return (self.job_id, self.text, self.mode, self.ms, len(self.fields), *self.fields)


class _Terms(NamedTuple):
    """What options come to, checked: the same for all jobs that have the same options."""

    own_id: str | None
    mode: str
    ms: int
    fields: tuple[Argument, ...]
    durability: Durability


def prepare(queue: Settings, payload: Any, options: Options, *, is_marked: bool = False) -> Prepared:
    """Check a new job. One that is marked is told from another of its id, though its request be sent twice.

    Raises:
        UsageError: something in it can't be meant; the message names it.
    """
    terms = _terms(queue, options, is_marked=is_marked)
    return _prepared(queue, payload, terms, terms.own_id or new_ids()[0])


def prepare_many(queue: Settings, jobs: Iterable[Any], options: Options, *, is_marked: bool = False) -> list[Prepared]:
    """Check new jobs: payloads, or `NewJob`s, each with its own options before the common ones.

    Raises:
        UsageError: something in one of them can't be meant; the message names it.
    """
    rows = list(jobs)
    if options.must_create or options.reuse_id:
        rows = [row if isinstance(row, NewJob) else NewJob(row) for row in rows]
    common = _terms(queue, options._replace(must_create=False, reuse_id=False))
    prepared = []
    for row, fresh_id in zip(rows, new_ids(len(rows)) if rows else (), strict=True):
        if isinstance(row, NewJob):
            terms = _terms(queue, _merged(row, options), is_marked=is_marked)
            prepared.append(_prepared(queue, row.payload, terms, terms.own_id or fresh_id))
        else:
            prepared.append(_prepared(queue, row, common, fresh_id))
    return prepared


def _prepared(queue: Settings, payload: Any, terms: _Terms, job_id: str) -> Prepared:
    text = encode(payload, queue.max_payload)
    own_id, mode, ms, fields, durability = terms
    for tracer in tracers:
        if trace := tracer(queue.name, job_id, text):
            fields += ("trace", trace)
    return Prepared(job_id, text, mode, ms, fields, own_id is not None, durability)


def _merged(row: NewJob, common: Options) -> Options:
    has_time = row.delay is not None or row.run_at is not None
    has_wish = row.must_create or row.reuse_id
    return Options(
        delay=row.delay if has_time else common.delay,
        run_at=row.run_at if has_time else common.run_at,
        job_id=row.job_id,
        max_attempts=row.max_attempts if row.max_attempts is not None else common.max_attempts,
        backoff=row.backoff if row.backoff is not None else common.backoff,
        timeout=row.timeout if row.timeout is not None else common.timeout,
        durability=row.durability if row.durability is not None else common.durability,
        must_create=row.must_create if has_wish else common.must_create,
        reuse_id=row.reuse_id if has_wish else common.reuse_id,
    )


def _terms(queue: Settings, options: Options, *, is_marked: bool = False) -> _Terms:
    own_id = None if options.job_id is None else checked_id(options.job_id)
    mode, ms = when(options.delay, options.run_at)
    durability = queue.durability if options.durability is None else checked_durability(options.durability)
    fields = _fields(options)
    has_wish = options.must_create is not False or options.reuse_id is not False
    wish = _wish(options) if has_wish else ""
    if own_id is not None and (wish or is_marked):
        # By this the script knows, when the request is sent again, that the job which is there was made by it.
        mark = new_request()
        mode, fields = f"{mode}:{wish}:{mark}", (*fields, "made_by", mark)
    return _Terms(own_id, mode, ms, fields, durability)


def _wish(options: Options) -> str:
    """What is to become of a job that has the id: 'create', 'reuse', or '' to go by its payload."""
    for name in ("must_create", "reuse_id"):
        value = getattr(options, name)
        if not isinstance(value, bool):
            raise UsageError(f"{name} must be True or False, got {value!r}")
        if value and options.job_id is None:
            raise UsageError(f"{name} needs a job_id of your own: without one every job gets a new id")
    if options.must_create and options.reuse_id:
        raise UsageError("give must_create or reuse_id, not both: the one refuses an id that the other replaces")
    return "create" if options.must_create else "reuse" if options.reuse_id else ""


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
        fields += ("timeout_ms", checked_timeout(options.timeout))
    return tuple(fields)
