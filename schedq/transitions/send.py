"""Send a message to a job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from schedq.errors import QueueFull, UsageError
from schedq.model.ids import new_request
from schedq.model.keys import checked_id
from schedq.model.payload import encode
from schedq.model.runs import MOST_MESSAGE, checked_message_id, checked_topic
from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation

_SEND: Final = Binding("send", "id", "topic", "message", "value", "plain")

_MOST_NAMES: Final = 1000


def send(
    queue: Settings, job_id: str, topic: str, value: Any, message_id: str | None = None, plain: Sequence[str] = ()
) -> Operation[bool]:
    """Put a message into a box of a job; returns whether it is there, or was: False for a job that has finished.

    `plain` has the tasks that the caller knows to be no workflows. The reply is a QueueFull if the job has too many
    messages that nothing has taken, and a UsageError if its task is no workflow.

    Raises:
        UsageError: the topic or the id is invalid, or the value is not JSON or too large.
    """
    limit = min(queue.max_payload, MOST_MESSAGE)
    bound = _SEND(
        queue,
        id=checked_id(job_id),
        topic=checked_topic(topic),
        message=new_request() if message_id is None else checked_message_id(message_id),
        value=encode(value, limit, "message"),
        plain=json.dumps([*plain[:_MOST_NAMES]]),
    )
    return Operation("send", *bound, lambda reply: _is_sent(job_id, topic, reply))


def _is_sent(job_id: str, topic: str, reply: str) -> bool:
    if reply == "FULL":
        raise QueueFull(
            f"job {job_id} has no room for this message: 100 messages of topic {topic}, 64 KiB of them, or 100 topics; "
            "send it again when the job has taken some"
        )
    word, _, task = reply.partition(" ")
    if word == "plain":
        raise UsageError(
            f"job {job_id} is one of task {task!r}, which is no workflow, so nothing would take the message; messages "
            "are for jobs of @queue.workflow"
        )
    return reply == "yes"
