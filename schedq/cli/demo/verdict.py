"""Whether the demo did what it was to do, judged from what is left. Pure, so that it can be seen to fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from schedq import backoff as plans
from schedq.cli.demo.programme import Errand, Size
from schedq.job import JobRecord


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
class Evidence:
    """All that the verdict goes by.

    Attributes:
        errands: the jobs that were enqueued.
        due_ms: job id → instant on Redis's clock before which it must not start; only of delayed jobs.
        records: job id → what Redis has of it.
        files: file name → size of the picture in it.
        webhooks: what the HTTP receiver saw, by Idempotency-Key.
        mails: what the mail sink saw, by the job id in the Message-ID.
        kill: the kill, if it came to it.
    """

    errands: Sequence[Errand]
    due_ms: Mapping[str, int]
    records: Mapping[str, JobRecord]
    files: Mapping[str, Size]
    webhooks: Mapping[str, Deliveries]
    mails: Mapping[str, Deliveries]
    kill: Kill | None


@dataclass(frozen=True, slots=True)
class Finding:
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


def judge(evidence: Evidence) -> list[Finding]:
    """Everything that the demo promises, one finding each."""
    starts = [start for errand in evidence.errands for start in _starts(errand, evidence)]
    judges: tuple[Callable[[Evidence], Finding], ...] = (_done, _pictures, _webhooks, _mails, _recovery)
    return [*(judge_one(evidence) for judge_one in judges), _early(evidence, starts), _late(evidence, starts)]


def _done(evidence: Evidence) -> Finding:
    problems = []
    for errand in evidence.errands:
        record = evidence.records.get(errand.id)
        if record is None or record.status != "completed":
            what = f"is {record.status}: {record.last_error or 'no error'}" if record else "is not in Redis"
            problems.append(f"job {errand.id} {what}")
    count = len(evidence.errands)
    retried = sum(_outcomes(record).count("retry") for record in evidence.records.values())
    summary = f"{count - len(problems)} of {count} jobs, {retried} attempts failed and came back"
    return Finding("Completed", summary, tuple(problems))


def _pictures(evidence: Evidence) -> Finding:
    wanted = {errand.file: errand.size for errand in evidence.errands if errand.file}
    problems = []
    for name, size in wanted.items():
        found = evidence.files.get(name)
        if found != size:
            shown = "is missing" if found is None else f"has {found[0]} x {found[1]} pixels"
            problems.append(f"{name} {shown}, not {size[0]} x {size[1]}")
    summary = f"{len(wanted) - len(problems)} of {len(wanted)} pictures are there in the right size"
    return Finding("Pictures", summary, tuple(problems))


def _webhooks(evidence: Evidence) -> Finding:
    wanted = [errand for errand in evidence.errands if errand.task == "deliver_webhook"]
    problems = [*_misdelivered(wanted, evidence.webhooks, evidence)]
    for errand in wanted:
        refused = evidence.webhooks.get(errand.id, Deliveries()).refused
        if refused != errand.refusals:
            problems.append(f"{errand.id} was refused {refused} times instead of {errand.refusals}")
    forged = sum(seen.forged for seen in evidence.webhooks.values())
    if forged:
        problems.append(f"{forged} deliveries had a wrong signature")
    came_back = [errand.refusals for errand in wanted if errand.refusals]
    summary = (
        f"{_accepted(wanted, evidence.webhooks)} of {len(wanted)} signed deliveries accepted, each once; "
        f"{len(came_back)} were refused {sum(came_back)} times before"
    )
    return Finding("Webhooks", summary, tuple(problems))


def _mails(evidence: Evidence) -> Finding:
    wanted = [errand for errand in evidence.errands if errand.task == "remind"]
    problems = tuple(_misdelivered(wanted, evidence.mails, evidence))
    summary = f"{_accepted(wanted, evidence.mails)} of {len(wanted)} reminders are in the sink, each once"
    return Finding("Mail", summary, problems)


def _misdelivered(wanted: Sequence[Errand], seen: Mapping[str, Deliveries], evidence: Evidence) -> Iterator[str]:
    for errand in wanted:
        deliveries = seen.get(errand.id, Deliveries())
        if deliveries.accepted != 1:
            yield f"{errand.id} was accepted {deliveries.accepted} times"
        # At least once is what is promised: who dies between delivering and saying so delivers again.
        lost = _outcomes(evidence.records.get(errand.id)).count("lost")
        if deliveries.duplicates > lost:
            yield f"{errand.id} came {deliveries.duplicates} times too often, with {lost} attempts lost"
    for key in seen.keys() - {errand.id for errand in wanted}:
        yield f"a delivery with the unknown key {key!r} came in"


def _recovery(evidence: Evidence) -> Finding:
    kill = evidence.kill
    if kill is None:
        return Finding("Recovery", "no worker was killed", ("no job was running long enough to kill its worker",))
    record = evidence.records.get(kill.job_id)
    if record is None:
        return Finding("Recovery", f"{kill.job_id} is gone", (f"nothing is stored of job {kill.job_id}",))
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
    return Finding("Recovery", summary, tuple(problems))


def _early(evidence: Evidence, starts: Sequence[Start]) -> Finding:
    problems = [f"{start.name} started {-start.late_ms} ms early" for start in starts if start.late_ms < 0]
    for job_id, due_ms in evidence.due_ms.items():
        seen = evidence.webhooks.get(job_id) or evidence.mails.get(job_id)
        if seen and seen.first_at_ms < due_ms:
            problems.append(f"{job_id} arrived {due_ms - seen.first_at_ms} ms early")
    summary = f"{len(problems)} of {len(starts)} delayed starts and retries, by Redis's clock and by the receivers'"
    return Finding("Early", summary, tuple(problems))


def _late(evidence: Evidence, starts: Sequence[Start]) -> Finding:
    never = sorted(evidence.due_ms.keys() - {start.name for start in starts})
    problems = tuple(f"{job_id} was due, and there is no record of its start" for job_id in never)
    late = sorted(start.late_ms for start in starts)
    if not late:
        return Finding("Late", "nothing started", problems or ("no job was delayed",))
    summary = f"p50 {percentile(late, 50)} ms, p99 {percentile(late, 99)} ms, at most {late[-1]} ms"
    details = tuple(f"{start.name}: {start.late_ms} ms" for start in starts)
    return Finding("Late", f"{summary}, from due instant to start", problems, details)


def percentile(ordered: Sequence[int], share: int) -> int:
    """The value that `share` percent of the ascending values do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]


def _starts(errand: Errand, evidence: Evidence) -> Iterator[Start]:
    record = evidence.records.get(errand.id)
    if record is None:
        return
    due_ms, name = evidence.due_ms.get(errand.id), errand.id
    for entry in record.history:
        if due_ms is not None:
            yield Start(name, due_ms, int(entry["started_at_ms"]))
        due_ms = None
        if entry["outcome"] == "retry":
            due_ms = int(entry["ended_at_ms"]) + _least_wait_ms(record, int(entry["attempt"]))
            name = f"{errand.id} try {int(entry['attempt']) + 1}"


def _least_wait_ms(record: JobRecord, attempt: int) -> int:
    """The shortest wait that the job's backoff allows after `attempt`."""
    plan = plans.from_text(record.fields.get("backoff", ""))
    return 0 if plan is None else math.floor(plan.wait(attempt) * (1 - plan.jitter) * 1000)


def _outcomes(record: JobRecord | None) -> list[str]:
    return [str(entry.get("outcome")) for entry in record.history] if record else []


def _accepted(wanted: Sequence[Errand], seen: Mapping[str, Deliveries]) -> int:
    return sum(errand.id in seen and seen[errand.id].accepted == 1 for errand in wanted)
