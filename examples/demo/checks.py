"""Whether the demo did what it should, judged from its results. Pure, so that tests can make each check fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from demo.plan import PlannedJob, Size
from schedq.model import backoff as plans
from schedq.model.records import JobRecord


@dataclass(frozen=True, slots=True)
class Kill:
    """The SIGKILL: which job, on which worker, and when on Redis's clock."""

    job_id: str
    worker: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What a receiver saw of one webhook or e-mail.

    Attributes:
        accepted: deliveries accepted as new; 1 is correct.
        duplicates: valid deliveries of a key that had already been accepted.
        refused: deliveries rejected with status 503.
        forged: deliveries with an invalid signature.
        first_at_ms: arrival of the first one, ms since the epoch.
    """

    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    forged: int = 0
    first_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Results:
    """All input of the verdict.

    Attributes:
        jobs: the jobs that were enqueued.
        due_ms: job id → instant on Redis's clock before which it must not start; delayed jobs only.
        records: job id → its record in Redis.
        files: file name → size of the picture.
        webhooks: what the HTTP receiver saw, by Idempotency-Key.
        mails: what the mail sink saw, by the job id in the Message-ID.
        kill: the kill, if there was one.
    """

    jobs: Sequence[PlannedJob]
    due_ms: Mapping[str, int]
    records: Mapping[str, JobRecord]
    files: Mapping[str, Size]
    webhooks: Mapping[str, Deliveries]
    mails: Mapping[str, Deliveries]
    kill: Kill | None


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; it passed if there are no problems. `details` are for a closer look."""

    title: str
    summary: str
    problems: tuple[str, ...] = field(default=())
    details: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Start:
    """A start with a due instant: of a delayed job, or of a retry after its backoff."""

    name: str
    due_ms: int
    started_at_ms: int

    @property
    def late_ms(self) -> int:
        """Time from its due instant to its start; negative if it started early."""
        return self.started_at_ms - self.due_ms


def judge(results: Results) -> list[Check]:
    """One check for each promise of the demo."""
    starts = [start for job in results.jobs for start in _starts(job, results)]
    judges: tuple[Callable[[Results], Check], ...] = (_done, _pictures, _webhooks, _mails, _recovery)
    return [*(judge_one(results) for judge_one in judges), _early(results, starts), _late(results, starts)]


def _done(results: Results) -> Check:
    problems = []
    for job in results.jobs:
        record = results.records.get(job.id)
        if record is None or record.status != "completed":
            what = f"is {record.status}: {record.last_error or 'no error'}" if record else "is not in Redis"
            problems.append(f"job {job.id} {what}")
    count = len(results.jobs)
    retried = sum(_outcomes(record).count("retry") for record in results.records.values())
    summary = f"{count - len(problems)} of {count} jobs, {retried} attempts failed and were retried"
    return Check("Completed", summary, tuple(problems))


def _pictures(results: Results) -> Check:
    wanted = {job.file: job.size for job in results.jobs if job.file}
    problems = []
    for name, size in wanted.items():
        found = results.files.get(name)
        if found != size:
            shown = "is missing" if found is None else f"has {found[0]} x {found[1]} pixels"
            problems.append(f"{name} {shown}, not {size[0]} x {size[1]}")
    summary = f"{len(wanted) - len(problems)} of {len(wanted)} pictures have the right size"
    return Check("Pictures", summary, tuple(problems))


def _webhooks(results: Results) -> Check:
    wanted = [job for job in results.jobs if job.task == "deliver_webhook"]
    problems = [*_misdelivered(wanted, results.webhooks, results)]
    for job in wanted:
        refused = results.webhooks.get(job.id, Deliveries()).refused
        if refused != job.refusals:
            problems.append(f"{job.id} was refused {refused} times instead of {job.refusals}")
    forged = sum(seen.forged for seen in results.webhooks.values())
    if forged:
        problems.append(f"{forged} deliveries had an invalid signature")
    came_back = [job.refusals for job in wanted if job.refusals]
    summary = (
        f"{_accepted(wanted, results.webhooks)} of {len(wanted)} signed deliveries accepted, each once; "
        f"{len(came_back)} were refused {sum(came_back)} times before"
    )
    return Check("Webhooks", summary, tuple(problems))


def _mails(results: Results) -> Check:
    wanted = [job for job in results.jobs if job.task == "remind"]
    problems = tuple(_misdelivered(wanted, results.mails, results))
    summary = f"{_accepted(wanted, results.mails)} of {len(wanted)} reminders are in the sink, each once"
    return Check("Mail", summary, problems)


def _misdelivered(wanted: Sequence[PlannedJob], seen: Mapping[str, Deliveries], results: Results) -> Iterator[str]:
    for job in wanted:
        deliveries = seen.get(job.id, Deliveries())
        if deliveries.accepted != 1:
            yield f"{job.id} was accepted {deliveries.accepted} times"
        # Delivery is at least once: a worker that dies after delivering, before it reports, causes a second delivery.
        lost = _outcomes(results.records.get(job.id)).count("lost")
        if deliveries.duplicates > lost:
            yield f"{job.id} was delivered {deliveries.duplicates} times too often, with {lost} attempts lost"
    for key in seen.keys() - {job.id for job in wanted}:
        yield f"a delivery with the unknown key {key!r} arrived"


def _recovery(results: Results) -> Check:
    kill = results.kill
    if kill is None:
        return Check("Recovery", "no worker was killed", ("no job ran long enough for its worker to be killed",))
    record = results.records.get(kill.job_id)
    if record is None:
        return Check("Recovery", f"{kill.job_id} is gone", (f"job {kill.job_id} is not stored",))
    lost = [entry.get("worker") for entry in record.history if entry.get("outcome") == "lost"]
    problems = []
    if kill.worker not in lost:
        problems.append(f"job {kill.job_id} was not lost by the killed worker {kill.worker}")
    if record.status != "completed":
        problems.append(f"job {kill.job_id} is {record.status}")
    if record.worker in ("", kill.worker):
        problems.append(f"job {kill.job_id} was not finished by another worker")
    if record.attempts != 2:
        problems.append(f"job {kill.job_id} took {record.attempts} attempts instead of 2")
    waited_s = (record.started_at_ms - kill.at_ms) / 1000
    summary = f"{kill.job_id}: killed on {kill.worker}, started again {waited_s:.1f} s later on {record.worker}"
    return Check("Recovery", summary, tuple(problems))


def _early(results: Results, starts: Sequence[Start]) -> Check:
    problems = [f"{start.name} started {-start.late_ms} ms early" for start in starts if start.late_ms < 0]
    for job_id, due_ms in results.due_ms.items():
        seen = results.webhooks.get(job_id) or results.mails.get(job_id)
        if seen and seen.first_at_ms < due_ms:
            problems.append(f"{job_id} arrived {due_ms - seen.first_at_ms} ms early")
    summary = f"{len(problems)} of {len(starts)} delayed starts and retries, by Redis's clock and by the receivers'"
    return Check("Early", summary, tuple(problems))


def _late(results: Results, starts: Sequence[Start]) -> Check:
    never = sorted(results.due_ms.keys() - {start.name for start in starts})
    problems = tuple(f"{job_id} was due, but there is no record of its start" for job_id in never)
    late = sorted(start.late_ms for start in starts)
    if not late:
        return Check("Late", "nothing started", problems or ("no job was delayed",))
    summary = f"p50 {percentile(late, 50)} ms, p99 {percentile(late, 99)} ms, at most {late[-1]} ms"
    details = tuple(f"{start.name}: {start.late_ms} ms" for start in starts)
    return Check("Late", f"{summary}, from due instant to start", problems, details)


def percentile(ordered: Sequence[int], share: int) -> int:
    """The value that `share` percent of the ascending values do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]


def _starts(job: PlannedJob, results: Results) -> Iterator[Start]:
    record = results.records.get(job.id)
    if record is None:
        return
    due_ms, name = results.due_ms.get(job.id), job.id
    for entry in record.history:
        if due_ms is not None:
            yield Start(name, due_ms, int(entry["started_at_ms"]))
        due_ms = None
        if entry["outcome"] == "retry":
            due_ms = int(entry["ended_at_ms"]) + _least_wait_ms(record, int(entry["attempt"]))
            name = f"{job.id} try {int(entry['attempt']) + 1}"


def _least_wait_ms(record: JobRecord, attempt: int) -> int:
    """The shortest wait that the job's backoff allows after `attempt`."""
    plan = plans.from_text(record.fields.get("backoff", ""))
    return 0 if plan is None else math.floor(plan.wait(attempt) * (1 - plan.jitter) * 1000)


def _outcomes(record: JobRecord | None) -> list[str]:
    return [str(entry.get("outcome")) for entry in record.history] if record else []


def _accepted(wanted: Sequence[PlannedJob], seen: Mapping[str, Deliveries]) -> int:
    return sum(job.id in seen and seen[job.id].accepted == 1 for job in wanted)
