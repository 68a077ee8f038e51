"""Runs of workflows, as an attempt records and suspends them."""

from __future__ import annotations

import json
from typing import Any, Final

from schedq import ClaimedJob
from schedq.model import outcome
from schedq.model.runs import Memo, RunWait, beginning
from schedq.transitions import run, send
from scripts.tools.settling import settle_all
from tests.doors import Handle
from tests.transitions.scenes import held

HOUR: Final = 3_600_000
PAID: Final = RunWait("receive", "receive", None, "paid")


def begun(job: ClaimedJob, timeout_ms: int | None = None) -> ClaimedJob:
    """The job as the record of its run leaves it."""
    job.run = job.run or beginning(1, job.claimed_at_ms, timeout_ms)
    return job


def running(queue: Handle, timeout_ms: int | None = None, **options: Any) -> ClaimedJob:
    """A run that has just begun."""
    return begun(held(queue, **options), timeout_ms)


def suspend(queue: Handle, job: ClaimedJob, *waits: RunWait) -> str:
    """End the attempt; returns the word."""
    (word,) = queue._drive(settle_all(queue.settings, [outcome.suspended(job, waits)]))
    found: str = word
    return found


def message(queue: Handle, job_id: str, topic: str = "paid", value: object = 7, message_id: str | None = None) -> bool:
    """Send a message."""
    found: bool = queue._ask(send.send(queue.settings, job_id, topic, value, message_id))
    return found


def taken(queue: Handle, job: ClaimedJob, name: str = "receive", timeout_ms: int | None = None) -> Memo:
    """What an attempt receives; the wait must be over."""
    answer = queue._ask(run.receive(queue.settings, job, name, "paid", timeout_ms))
    found = Memo.read(answer.rest[0])
    assert found is not None, f"it waits until {answer.rest[0]}"
    return found


def waits_until(queue: Handle, job: ClaimedJob, timeout_ms: int | None = None) -> int | None:
    """The instant until which an attempt waits for a message; None for no limit."""
    answer = queue._ask(run.receive(queue.settings, job, "receive", "paid", timeout_ms))
    assert answer.word == "WAITS"
    return int(answer.rest[0]) if answer.rest[0] else None


def step(value: object, word: str = "ok") -> str:
    """The memo of a step, as an attempt sends it."""
    return json.dumps(["step", word, value, 10, 20, 1], separators=(",", ":"))
