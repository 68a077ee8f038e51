"""The page of a workflow's job: its steps, what it waits for, and messages to it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from schedq import Job, Queue, StepFailed, WorkflowContext
from schedq.testing import run_due
from tests.dashboard.conftest import Visitor
from tests.dashboard.test_pages import text_of


@pytest.fixture
def waiting(queue: Queue) -> Job[Any]:
    """A run that has taken two steps, one of which failed, and waits for a verdict."""

    def charge(amount: int) -> dict[str, int]:
        return {"receipt": amount}

    def ship() -> None:
        raise ValueError("no <parcel>")

    @queue.workflow(max_attempts=1)
    async def order(ctx: WorkflowContext) -> Any:
        await ctx.step(charge, 5)
        try:
            await ctx.step(ship)
        except StepFailed:
            return await ctx.receive("verdict")

    job = order.enqueue()
    run_due(queue)
    return job


def page_of(job: Job[Any]) -> str:
    return f"/queues/mail/jobs/{job.id}"


def test_steps_and_waits_are_shown(visitor: Visitor, waiting: Job[Any]) -> None:
    text = text_of(visitor.page(page_of(waiting)))

    assert re.search(r'It has waited [^.]* for a message on topic "verdict"', text), text
    assert re.search(r'Done so far .* charge ok \S+ m?s [\d:.]+ \{"receipt": 5\} ship error .*no <parcel>', text), text
    assert "9999-" not in text
    timeline = text.partition("Timeline")[2].partition("Facts")[0]
    assert re.search(
        r"run began .* step charge: ok after .* step ship: error after .* receive verdict begins", timeline
    )
    assert "Due – never" in text


def test_a_message_is_sent_from_the_page(visitor: Visitor, waiting: Job[Any], queue: Queue) -> None:
    do = f"send_message job {waiting.id}"
    assert f'value="{do}"' in visitor.page(page_of(waiting))
    question, _ = visitor.ask(do)
    assert f"Send a message to job {waiting.id}?" in text_of(question)
    assert 'name="topic" required value="verdict"' in question

    notice = visitor.do(do, back=page_of(waiting), topic="verdict", value='{"approved": true}')

    assert f"A message on topic verdict was sent to job {waiting.id}." in notice
    assert queue.inspector.log()[-1].fields["who"] == "dashboard"
    run_due(queue)
    assert waiting.result(0) == {"approved": True}
    page = visitor.page(page_of(waiting))
    assert "send_message" not in page
    assert "<h2>Done</h2>" in page


def test_messages_that_nothing_takes_are_counted(visitor: Visitor, waiting: Job[Any]) -> None:
    waiting.send("other", 1)
    waiting.send("other", 2)

    assert "2 messages on topic other that nothing has taken." in text_of(visitor.page(page_of(waiting)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topic": "verdict", "value": "yes"}, "is not JSON: write a text in quotes"),
        ({"topic": "no topic", "value": "1"}, "topic &#39;no topic&#39; must be"),
        ({"value": "1"}, "topic &#39;&#39; must be"),
    ],
)
def test_wrong_messages_are_refused(visitor: Visitor, waiting: Job[Any], fields: dict[str, str], words: str) -> None:
    _, hidden = visitor.ask(f"send_message job {waiting.id}")

    answer = visitor.post("/queues/mail/act", hidden | fields)

    assert answer.status_code == 400
    assert words in answer.text


def test_a_job_that_has_ended_takes_no_message(visitor: Visitor, waiting: Job[Any]) -> None:
    _, hidden = visitor.ask(f"send_message job {waiting.id}")
    waiting.cancel()

    answer = visitor.post("/queues/mail/act", hidden | {"topic": "verdict", "value": "1"})

    assert f"job {waiting.id} takes no message" in answer.text
