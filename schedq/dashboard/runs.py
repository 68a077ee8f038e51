"""What the page of a workflow's job shows of its run, and how a message is sent to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schedq.dashboard.security import Refusal
from schedq.errors import UsageError
from schedq.inspect import runs
from schedq.model.escaping import harmless
from schedq.model.records import JobRecord
from schedq.model.runs import checked_topic
from schedq.model.times import span
from schedq.queue.queue import AsyncQueue

MESSAGE_FIELDS: Final = ("topic", "value")
MOST_VALUE: Final = 20_000
"""Maximum number of characters of a message."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a run that is over, as text.

    Attributes:
        name: with the path of its branch.
        kind: step, sleep, receive, call, map, gather or first.
        outcome: ok, error, timeout or cancelled.
        took: how long it took.
        ended_at_ms: when it was over.
        value: its result or error as JSON, or ''.
    """

    name: str
    kind: str
    outcome: str
    took: str
    ended_at_ms: int
    value: str


def steps(record: JobRecord) -> list[Step]:
    """The operations of its run that are over, in their order; none for other jobs."""
    return [
        Step(
            done.name,
            done.memo.kind,
            done.memo.outcome,
            span(max(0, done.memo.ended_ms - done.memo.began_ms)),
            done.memo.ended_ms,
            "" if done.memo.value is None else json.dumps(done.memo.value, ensure_ascii=False),
        )
        for done in runs.done(record.fields)
    ]


def messages(record: JobRecord) -> list[tuple[str, int]]:
    """The topics with messages that nothing has taken, and how many each has."""
    return [*runs.messages(record.fields)]


async def topic_of(queue: AsyncQueue, job_id: str) -> str:
    """A topic for whose messages the run waits; '' if it waits for none."""
    record = await queue.get_job(job_id)
    waits = runs.open_waits(record.fields) if record is not None else ()
    return next((wait.topic for wait in waits if wait.topic), "")


async def send(queue: AsyncQueue, job_id: str, message: Mapping[str, str]) -> tuple[str, int]:
    """Send a message to a job; return what was done in words, and how many messages were sent.

    Raises:
        Refusal: the value is no JSON.
        UsageError: the topic or the value is invalid, or there are too many messages.
    """
    topic, text = checked_topic(message.get("topic", "").strip()), message.get("value", "")
    try:
        value = json.loads(text)
    except ValueError:
        raise Refusal(
            400, f"The value {harmless(text)[:80]!r} is not JSON: write a text in quotes, or true, 17, {{…}} or null."
        ) from None
    is_sent = await queue.job(job_id).asend(topic, value)
    if not is_sent:
        raise UsageError(f"job {job_id} takes no message: it has ended, or does not exist")
    return f"a message on topic {topic} was sent to job {job_id}", 1
