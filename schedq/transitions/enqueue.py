"""New jobs: check their payloads and options, and store them, one or many."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from schedq.errors import Conflict, NotAcknowledged, QueueFull, SchedqError, StoreUnavailable, UsageError
from schedq.model import backoff as plans
from schedq.model.durability import Durability, Wait, checked_durability
from schedq.model.expiry import TOO_EARLY, ExpiryError, check_due_in_time, stored_expiry
from schedq.model.headers import merged_headers, stored_headers
from schedq.model.ids import new_ids, new_request
from schedq.model.keys import checked_id
from schedq.model.payload import encode, size_of
from schedq.model.records import NewJob, Options
from schedq.model.settings import Settings, checked_attempts
from schedq.model.times import checked_timeout, duration_ms, instant_ms
from schedq.transitions import MOST_BYTES, Argument, Binding, Operation, RoundTrips, chunked, unwrap

T = TypeVar("T")
_ENQUEUE: Final = Binding("enqueue", "whose_ids", "new_jobs")
_ENQUEUE_UNIQUE: Final = Binding("enqueue_unique", "whose_ids", "new_jobs", "gate_limits")
MOST_IDS: Final = 150
"""The most jobs in one script, which blocks all other clients for 4 to 10 µs a job."""
_PORTION: Final = 256
_ROUND_TRIP_BYTES: Final = 8 * MOST_BYTES
ACCEPTED: Final = ("STORED", "EXISTS")
_HELD: Final = ("UNIQUE", "REPLACED")
"""Words, followed by an id, for a job that was not stored because another one holds its unique key."""
_OF_ONE_JOB: Final = (Conflict, ExpiryError)
"""Errors that do not stop other jobs of the same request from being stored."""
tracers: Final[list[Callable[[str, str, str], str]]] = []
"""Functions (queue, job id, payload text) → the job's `trace`, the trace context of its producer; '' for none."""
counters: Final[list[Callable[[str, int, str], None]]] = []
"""Functions that are called with (queue, number of jobs, class of the error or '') when jobs were sent."""


class EncodedJob(NamedTuple):
    """A new job, checked and ready to send."""

    job_id: str
    text: str
    mode: str
    ms: int
    fields: tuple[Argument, ...]
    is_callers_id: bool
    durability: Durability

    @property
    def if_exists(self) -> str:
        """What to do if the id exists: 'create' refuses it, 'reuse' replaces a finished job, '' compares payloads.

        'import' compares payloads too, and refuses the job if another one holds its unique key, whatever its rule says.
        """
        return self.mode.partition(":")[2].partition(":")[0]

    def size(self) -> int:
        """Its approximate size in a request, in bytes."""
        size = size_of(self.text) + 128
        return size + sum(len(str(value)) for value in self.fields) if self.fields else size


_Resolved = tuple[str | None, str, int, tuple[Argument, ...], Durability]
"""Checked options: the caller's own id, mode, ms, fields, durability. There is one for each job, and creating a named
tuple would take three times as long."""


def prepare(queue: Settings, payload: Any, options: Options, *, is_marked: bool = False) -> EncodedJob:
    """Check a new job. With a mark, a repeated request can tell its own job from another one with the same id.

    Raises:
        UsageError: the payload or an option is invalid; the message names it.
    """
    return _encoded(queue, payload, _resolved(queue, options, is_marked=is_marked))


def check(queue: Settings, options: Options) -> None:
    """Check options of a job.

    Raises:
        UsageError: as `prepare`.
    """
    _resolved(queue, options)


def prepare_many(
    queue: Settings, jobs: Iterable[Any], options: Options, *, is_marked: bool = False
) -> list[EncodedJob]:
    """Check new jobs: payloads, or `NewJob`s, whose own options take precedence over the common ones.

    Raises:
        UsageError: a payload or an option is invalid; the message names it.
    """
    common = _resolved(queue, options._replace(must_create=False, reuse_id=False))
    is_common, rows, found = not (options.must_create or options.reuse_id), iter(jobs), list[EncodedJob]()
    # A portion at a time: the garbage collector would look through payloads that are kept until the end.
    while portion := list(islice(rows, _PORTION)):
        for row, fresh_id in zip(portion, new_ids(len(portion)), strict=True):
            payload, resolved = row, common
            if isinstance(row, NewJob) or not is_common:
                own = row if isinstance(row, NewJob) else NewJob(row)
                payload, resolved = own.payload, _resolved(queue, merged(own, options), is_marked=is_marked)
            found.append(_encoded(queue, payload, resolved, fresh_id))
    return found


def _encoded(queue: Settings, payload: Any, resolved: _Resolved, fresh_id: str = "") -> EncodedJob:
    own_id, mode, ms, fields, durability = resolved
    job_id = own_id or fresh_id or new_ids()[0]
    text = encode(payload, queue.max_payload)
    for tracer in tracers:
        if trace := tracer(queue.name, job_id, text):
            fields += ("trace", trace)
    return EncodedJob(job_id, text, mode, ms, fields, own_id is not None, durability)


def merged(row: NewJob, common: Options) -> Options:
    """A job's options: its own, and the common ones where it has none."""
    has_time = row.delay is not None or row.run_at is not None
    says_if_exists = row.must_create or row.reuse_id
    return Options(
        delay=row.delay if has_time else common.delay,
        run_at=row.run_at if has_time else common.run_at,
        job_id=row.job_id,
        max_attempts=row.max_attempts if row.max_attempts is not None else common.max_attempts,
        backoff=row.backoff if row.backoff is not None else common.backoff,
        timeout=row.timeout if row.timeout is not None else common.timeout,
        durability=row.durability if row.durability is not None else common.durability,
        must_create=row.must_create if says_if_exists else common.must_create,
        reuse_id=row.reuse_id if says_if_exists else common.reuse_id,
        expires=row.expires if row.expires is not None else common.expires,
        headers=merged_headers(common.headers, row.headers),
        completed_ttl=row.completed_ttl if row.completed_ttl is not None else common.completed_ttl,
        failed_ttl=row.failed_ttl if row.failed_ttl is not None else common.failed_ttl,
        unique=row.unique if row.unique is not None else common.unique,
        gate=row.gate if row.gate is not None else common.gate,
        key=row.key if row.key is not None else common.key,
    )


def _resolved(queue: Settings, options: Options, *, is_marked: bool = False) -> _Resolved:
    own_id = None if options.job_id is None else checked_id(options.job_id)
    mode, ms = when(options.delay, options.run_at)
    durability = queue.durability if options.durability is None else checked_durability(options.durability)
    fields: tuple[Argument, ...] = ()
    if options.max_attempts is not None:
        fields += ("max_attempts", checked_attempts(options.max_attempts))
    if options.backoff is not None:
        fields += ("backoff", plans.to_text(plans.checked_plan(options.backoff)))
    if options.timeout is not None:
        fields += ("timeout_ms", checked_timeout(options.timeout))
    if options.expires is not None:
        expiry = stored_expiry(options.expires)
        check_due_in_time(expiry, mode, ms)
        fields += ("expires", expiry)
    if options.headers is not None and (headers := stored_headers(options.headers)):
        fields += ("headers", headers)
    if options.completed_ttl is not None:
        fields += ("completed_ttl_ms", duration_ms(options.completed_ttl, "completed_ttl"))
    if options.failed_ttl is not None:
        fields += ("failed_ttl_ms", duration_ms(options.failed_ttl, "failed_ttl"))
    if options.gate is not None or options.key is not None:
        from schedq.model.gates import stored_gate

        fields += stored_gate(queue.gates, options.gate, options.key)
    needs_mark = own_id is not None and is_marked
    if options.unique is not None:
        own, mode, ms = _unique(options, mode, ms)
        fields += own
        needs_mark = needs_mark or bool(own)
    says_if_exists = options.must_create is not False or options.reuse_id is not False
    if_exists = _if_exists(options) if says_if_exists else ""
    if if_exists or needs_mark:
        # If the request is repeated, this tells the script that the request itself created the existing job.
        mark = new_request()
        mode, fields = f"{mode}:{if_exists}:{mark}", (*fields, "made_by", mark)
    return own_id, mode, ms, fields, durability


def _unique(options: Options, mode: str, ms: int) -> tuple[tuple[Argument, ...], str, int]:
    """The fields of a job with a unique key, none without one; and its due time, which a debounce decides."""
    from schedq.model import unique

    found = unique.resolved(options.unique)
    if found is None:
        return (), mode, ms
    if found.wait_ms or "debounce" in found.rule:
        if (mode, ms) != ("in", 0):
            raise UsageError("a debounced job is due when its calls have ceased: give no delay and no run_at")
        ms = found.wait_ms
    return ("unique", found.key, "unique_rule", found.rule), mode, ms


def is_unique(fields: Sequence[Argument]) -> bool:
    """Whether a job with these fields has a unique key."""
    return bool(fields) and "unique" in fields[::2]


def _if_exists(options: Options) -> str:
    for name in ("must_create", "reuse_id"):
        value = getattr(options, name)
        if not isinstance(value, bool):
            raise UsageError(f"{name} must be True or False, got {value!r}")
        if value and options.job_id is None:
            raise UsageError(f"{name} needs a job_id of your own: without one every job gets a new id")
    if options.must_create and options.reuse_id:
        raise UsageError("give must_create or reuse_id, not both: the one refuses an id that the other replaces")
    return "create" if options.must_create else "reuse"


def when(delay: object, run_at: object) -> tuple[str, int]:
    """The due time in the scripts' form: ('in', ms from now) or ('at', instant in ms).

    Raises:
        UsageError: both are given, or one is invalid.
    """
    if delay is None and run_at is None:
        return "in", 0
    if run_at is None:
        return "in", duration_ms(delay, "delay")
    if delay is None:
        return "at", instant_ms(run_at, "run_at")
    raise UsageError(f"give delay or run_at, not both (got delay={delay!r} and run_at={run_at!r})")


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """The result of storing a batch.

    Attributes:
        words: one word per job, in order; if there are fewer words than jobs, the rest must be sent again.
        missing: what was not confirmed in time; '' if everything was.
    """

    words: tuple[str, ...]
    missing: str = ""


def enqueue(queue: Settings, job: EncodedJob) -> Operation[str]:
    """Store one job; returns its id.

    Raises (when read):
        Conflict: another payload, or something that is not a job, is stored under this id.
        ExpiryError: the job would expire before it is due.
        QueueFull: `max_pending` jobs wait.
        NotAcknowledged: the job is stored, but its durability was not confirmed in time.
    """
    return _store_one(queue, job, lambda word: _outcome(job, word)[0])


def create(queue: Settings, job: EncodedJob) -> Operation[tuple[str, bool]]:
    """Store one job, marked if its id is the caller's; returns the id, and whether this request created the job.

    Raises (when read): as `enqueue`.
    """
    return _store_one(queue, job, lambda word: _outcome(job, word))


def _outcome(job: EncodedJob, word: str) -> tuple[str, bool]:
    """The id of the job that there is now, and whether this request created it."""
    if word == "STORED":
        return job.job_id, True
    kind, _, holder = word.partition(" ")
    if holder and kind in _HELD:
        return holder, False
    return job.job_id, not job.is_callers_id


def is_accepted(word: str) -> bool:
    """Whether nothing is left to do for a job: it is stored, or the one that holds its unique key is."""
    return word in ACCEPTED or word.partition(" ")[0] in _HELD


def _store_one(queue: Settings, job: EncodedJob, result: Callable[[str], T]) -> Operation[T]:
    def read(words: list[str]) -> T:
        if is_accepted(words[0]):
            return result(words[0])
        raise refusal(queue, job, words[0])

    waits = () if job.durability == "memory" else _waits(queue, [job])
    return _store(queue, [job], read, waits, lambda _, missing: _unconfirmed(queue, [job], [job.job_id], missing))


def _store_some(queue: Settings, batch: Sequence[EncodedJob], waits: tuple[Wait, ...]) -> Operation[Stored]:
    return _store(
        queue, batch, lambda words: Stored(tuple(words)), waits, lambda found, missing: replace(found, missing=missing)
    )


def _store(
    queue: Settings,
    batch: Sequence[EncodedJob],
    read: Callable[[list[str]], T],
    waits: tuple[Wait, ...],
    unconfirmed: Callable[[T, str], T | SchedqError],
) -> Operation[T]:
    new_jobs: list[Argument] = []
    whose_ids, is_plain, in_gates = 0, True, set[str]()
    for job in batch:
        job_id, text, mode, ms, fields, is_callers_id, _ = job
        new_jobs += (job_id, text, mode, ms, len(fields), *fields)
        if fields:
            names = fields[::2]
            if "gate" in names:
                in_gates.add(str(fields[names.index("gate") * 2 + 1]))
            is_plain = is_plain and not in_gates and "unique" not in names
        if is_callers_id:
            whose_ids = max(whose_ids, 2 if job.if_exists == "reuse" else 1)
    given: dict[str, Argument | Sequence[Argument]] = {"whose_ids": whose_ids, "new_jobs": new_jobs}
    operation = Operation(
        "enqueue",
        *(
            _ENQUEUE(queue, **given)
            if is_plain
            else _ENQUEUE_UNIQUE(queue, **given, gate_limits=_limits(queue, in_gates))
        ),
        read,
        waits=waits,
        unconfirmed=unconfirmed,
        repeatable_s=queue.repeatable_s,
        job_ids=(batch[0].job_id,) if len(batch) == 1 else (),
    )
    return _counted(queue, batch, operation) if counters else operation


def _limits(queue: Settings, in_gates: Iterable[str]) -> str:
    """The limits of these gates as the caller knows them, in the script's form; '' for no gates."""
    known = {name: queue.gates.get(name, "{}") for name in in_gates}
    return json.dumps(known) if known else ""


def _counted(queue: Settings, batch: Sequence[EncodedJob], operation: Operation[T]) -> Operation[T]:
    """Wrap an operation so that it reports the outcome of its jobs to the counters."""

    def tell(errors: Iterable[str]) -> None:
        for error, count in Counter(errors).items():
            for counter in counters:
                counter(queue.name, count, error)

    def read(words: list[str]) -> T:
        found = zip(batch, words, strict=False)
        tell("" if is_accepted(word) else type(refusal(queue, job, word)).__name__ for job, word in found)
        return operation.read(words)

    return operation._replace(read=read, failed=lambda error: tell([type(error).__name__] * len(batch)))


def _waits(queue: Settings, jobs: Sequence[EncodedJob]) -> tuple[Wait, ...]:
    """What to wait for after storing these jobs: every durability that one of them requires."""
    asked = {job.durability: None for job in jobs if job.durability != "memory"}
    return tuple([Wait.of(each, queue.replicas, queue.retry_for) for each in asked])


def enqueue_many(queue: Settings, jobs: Sequence[EncodedJob]) -> RoundTrips[list[str]]:
    """Store jobs, up to some megabytes in one round trip; returns their ids in order.

    Raises:
        QueueFull, NotAcknowledged: `stored` has the ids that were stored.
        Conflict, ExpiryError: the message names the id; all others are stored.
    """
    words = yield from _store_all(queue, jobs)
    return _ids(jobs, words)


def create_many(queue: Settings, jobs: Sequence[EncodedJob]) -> RoundTrips[Iterable[tuple[str, bool]]]:
    """`enqueue_many`, but return each job's id, in order, and whether this request created it, if it is marked."""
    words = yield from _store_all(queue, jobs)
    created = [word == "STORED" or _outcome(job, word)[1] for job, word in zip(jobs, words, strict=True)]
    # A list of tuples would cost each job a tenth of its time: so many objects more start the garbage collector twice.
    return zip(_ids(jobs, words), created, strict=True)


def _ids(jobs: Sequence[EncodedJob], words: Sequence[str]) -> list[str]:
    return [job.job_id if word == "STORED" else _outcome(job, word)[0] for job, word in zip(jobs, words, strict=True)]


def _store_all(queue: Settings, jobs: Sequence[EncodedJob]) -> RoundTrips[list[str]]:
    """Store jobs, up to some megabytes in one round trip; return the outcome of each."""
    words: list[str] = []
    stored: list[str] = []
    errors: list[SchedqError] = []
    missing, waits, left = "", _waits(queue, jobs), _batches(jobs)
    while left and not missing and all(isinstance(error, _OF_ONE_JOB) for error in errors):
        sent, left = _next_round_trip(left)
        again: list[list[EncodedJob]] = []
        results = yield [_store_some(queue, batch, waits) for batch in sent]
        for batch, found in zip(sent, results, strict=True):
            if isinstance(found, SchedqError):
                errors.append(found)
                continue
            missing = missing or found.missing
            words += found.words
            if found.words.count("STORED") == len(batch):
                stored += [job.job_id for job in batch]
                continue
            for job, word in zip(batch, found.words, strict=False):
                if word == "STORED":
                    stored.append(job.job_id)
                elif is_accepted(word):
                    stored.append(_outcome(job, word)[0])
                else:
                    errors.append(refusal(queue, job, word))
            if rest := batch[len(found.words) :]:
                again.append(rest)
        left = again + left
    if missing and stored:
        raise _unconfirmed(queue, jobs, stored, missing) from (errors[0] if errors else None)
    if errors:
        worst, known = _worst(errors, stored), frozenset(stored)
        if type(worst) is StoreUnavailable:
            worst.job_ids = tuple(job.job_id for job in jobs if job.job_id not in known)
        raise worst
    return words


def store_each(queue: Settings, jobs: Sequence[EncodedJob]) -> RoundTrips[list[str]]:
    """Store jobs batch by batch; returns for each, in order, STORED, EXISTS, or a word that `refusal` translates."""
    words: list[str] = []
    waits = _waits(queue, jobs)
    for batch in _batches(jobs):
        left = batch
        while left:
            (found,) = yield [_store_some(queue, left, waits)]
            some: Stored = unwrap(found)
            words += some.words
            if some.missing:
                raise _unconfirmed(queue, jobs, [job.job_id for job in jobs[: len(words)]], some.missing)
            left = left[len(some.words) :]
    return words


def _batches(jobs: Sequence[EncodedJob]) -> list[list[EncodedJob]]:
    return chunked(jobs, EncodedJob.size, MOST_IDS)


def _next_round_trip(left: list[list[EncodedJob]]) -> tuple[list[list[EncodedJob]], list[list[EncodedJob]]]:
    """Split batches into those to send together, up to a size, and the rest.

    Nothing follows a batch with callers' ids in the same round trip: part of it may have to be sent again, and later
    jobs must not overtake that part.
    """
    count, space = 0, _ROUND_TRIP_BYTES
    while count < len(left) and space > 0 and not (count and any(job.is_callers_id for job in left[count - 1])):
        space -= sum([len(job.text) for job in left[count]])  # roughly: exact sizes would take as long as encoding
        count += 1
    return left[:count], left[count:]


def _unconfirmed(queue: Settings, jobs: Sequence[EncodedJob], stored: Sequence[str], missing: str) -> NotAcknowledged:
    is_one = len(jobs) == 1
    what = f"job {stored[0]} is" if is_one else f"{len(stored)} of {len(jobs)} jobs are"
    again = f"job_id={stored[0]!r}" if is_one else "the ids in `stored`"
    if any(job.if_exists in ("create", "reuse") for job in jobs):
        again += ", without must_create and reuse_id,"
    return NotAcknowledged(
        f"queue {queue.name}: {what} stored on the primary, but {missing}; enqueue again with {again} to wait again",
        stored,
    )


def refusal(queue: Settings, job: EncodedJob, word: str) -> Conflict | QueueFull | ExpiryError:
    """The error for a job that was not stored, from the word that the script returned."""
    if word == "FULL":
        return QueueFull(f"queue {queue.name}: max_pending={queue.max_pending} jobs are waiting already")
    if word == "WRONGTYPE":
        return Conflict(f"{queue.keys.job(job.job_id)} is not a hash; job {job.job_id} can't be stored there")
    if word == "EXPIRES":
        return ExpiryError(f"job {job.job_id} of queue {queue.name}: {TOO_EARLY}")
    kind, _, status = word.partition(" ")
    if kind == "HELD":
        key = job.fields[job.fields.index("unique") + 1]
        return Conflict(f"job {status} of queue {queue.name} holds the unique key {key!r}")
    if kind == "TAKEN":
        return Conflict(f"job {job.job_id} of queue {queue.name} already exists ({status}), and must_create was given")
    if kind == "BUSY":
        return Conflict(
            f"job {job.job_id} of queue {queue.name} is {status}: reuse_id only replaces finished jobs; "
            "cancel it first, or wait until it has finished"
        )
    return Conflict(f"job {job.job_id} of queue {queue.name} exists with another payload")


def _worst(errors: Sequence[SchedqError], stored: Sequence[str]) -> SchedqError:
    """The error to raise out of several: the one that stopped the request, or else the conflicts."""
    for error in errors:
        if isinstance(error, QueueFull):
            return QueueFull(f"{error}; {len(stored)} of the jobs were stored", stored)
    for error in errors:
        if not isinstance(error, _OF_ONE_JOB):
            return error
    first = errors[0]
    return first if len(errors) == 1 else type(first)(f"{first} (and {len(errors) - 1} more); all others were stored")
