"""Whether the demo did what it was to do, judged from what is left. Pure, so that it can be seen to fail."""

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
    """What a receiver saw of one webhook or mail.

    Attributes:
        accepted: deliveries taken as new; 1 is right.
        duplicates: deliveries that were good, but known.
        refused: deliveries answered with 503.
        forged: deliveries whose signature was wrong.
        first_at_ms: when the first of them came in, ms since the epoch.
    """

    accepted: int = 0
    duplicates: int = 0
    refused: int = 0
    forged: int = 0
    first_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Results:
    """All that the verdict goes by.

    Attributes:
        jobs: the jobs that were enqueued.
        due_ms: job id → instant on Redis's clock before which it must not start; only of delayed jobs.
        records: job id → what Redis has of it.
        files: file name → size of the picture in it.
        webhooks: what the HTTP receiver saw, by Idempotency-Key.
        mails: what the mail sink saw, by the job id in the Message-ID.
        kill: the kill, if it came to it.
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
    """One thing that was judged: in order if there are no problems; `details` are for who wants to know it all."""

    title: str
    summary: str
    problems: tuple[str, ...] = field(default=())
    details: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Start:
    """A start that had a due instant: of a delayed job, or of a retry after its backoff."""

    name: str
    due_ms: int
    started_at_ms: int

    @property
    def late_ms(self) -> int:
        """How long after its due instant it started; negative is early."""
        return self.started_at_ms - self.due_ms


def judge(results: Results) -> list[Check]:
    """Everything that the demo promises, one check each."""
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
    summary = f"{count - len(problems)} of {count} jobs, {retried} attempts failed and came back"
    return Check("Completed", summary, tuple(problems))


def _pictures(results: Results) -> Check:
    wanted = {job.file: job.size for job in results.jobs if job.file}
    problems = []
    for name, size in wanted.items():
        found = results.files.get(name)
        if found != size:
            shown = "is missing" if found is None else f"has {found[0]} x {found[1]} pixels"
            problems.append(f"{name} {shown}, not {size[0]} x {size[1]}")
    summary = f"{len(wanted) - len(problems)} of {len(wanted)} pictures are there in the right size"
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
        problems.append(f"{forged} deliveries had a wrong signature")
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
        # At least once is what is promised: who dies between delivering and saying so delivers again.
        lost = _outcomes(results.records.get(job.id)).count("lost")
        if deliveries.duplicates > lost:
            yield f"{job.id} came {deliveries.duplicates} times too often, with {lost} attempts lost"
    for key in seen.keys() - {job.id for job in wanted}:
        yield f"a delivery with the unknown key {key!r} came in"


def _recovery(results: Results) -> Check:
    kill = results.kill
    if kill is None:
        return Check("Recovery", "no worker was killed", ("no job was running long enough to kill its worker",))
    record = results.records.get(kill.job_id)
    if record is None:
        return Check("Recovery", f"{kill.job_id} is gone", (f"nothing is stored about job {kill.job_id}",))
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
    summary = f"{kill.job_id}: killed on {kill.worker}, started anew {waited_s:.1f} s later on {record.worker}"
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
    problems = tuple(f"{job_id} was due, and there is no record of its start" for job_id in never)
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
