"""The pages of gates, and what can be done there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from schedq import NewJob, Queue, Rate
from tests.dashboard.conftest import Visitor
from tests.dashboard.test_pages import text_of

PAGE = "/queues/mail/gates"


@pytest.fixture
def busy(queue: Queue) -> Queue:
    """A queue with a gate of which one job runs and four wait."""
    queue.gate("api", concurrency=2, key_concurrency=1, rate=Rate(6000, per=60))
    queue.enqueue_many([NewJob(n, gate="api", key=key) for n, key in enumerate("aaabb")])
    assert queue.claim(0) is not None
    return queue


def test_gates_and_their_keys_are_shown(visitor: Visitor, busy: Queue) -> None:
    page = visitor.page(PAGE)
    assert re.search(r"api 1 of 2 4 2 1 [\d.]+ m?s 6,000 a minute 1 ", text_of(page)), text_of(page)
    assert re.search(r'<progress max="2" value="1"', page)
    (row,) = busy.gates.list()

    page = visitor.page(f"{PAGE}/api")
    assert "4 jobs of 2 keys" in text_of(page)
    assert re.search(r"a 2 1 full .* b 2 0 ready", text_of(page)), text_of(page)
    assert 'value="pause_gate gate api b"' in page
    assert visitor.get(f"{PAGE}/other").status_code == 404
    assert row.name == "api"


def test_the_menu_has_gates_if_there_are_any(visitor: Visitor, queue: Queue) -> None:
    queue.enqueue(1)
    assert PAGE not in visitor.page("/queues/mail")
    queue.gates.set(None, concurrency=3)
    assert PAGE in visitor.page("/queues/mail")
    assert "the queue itself 0 of 3" in text_of(visitor.page(PAGE))


def test_a_job_shows_its_gate_and_jobs_are_found_by_it(visitor: Visitor, busy: Queue) -> None:
    (job, *_) = busy.list_pending()

    assert f"Gate api , key {job.fields['key']}" in text_of(visitor.page(f"/queues/mail/jobs/{job.id}"))
    assert job.id in visitor.page(f"/queues/mail/jobs?state=pending&gate=api&key={job.fields['key']}")
    assert job.id not in visitor.page("/queues/mail/jobs?state=pending&gate=other")


@pytest.mark.parametrize(
    ("do", "fields", "notice"),
    [
        ("pause_gate gate api", {}, "Gate api is paused."),
        ("pause_gate gate api b", {}, "Key b of gate api is paused."),
        ("hold_gate gate api", {"delay": "30s"}, "Gate api is held for 30 s."),
        ("resume_gate gate api", {}, "Gate api was neither paused nor held."),
        ("set_gate gate api", {"concurrency": "5", "key_rate": "10/s", "rate": "none"}, "concurrency 5 (set by an"),
        ("set_gate gate ", {"concurrency": "5"}, "The queue's own limits: concurrency 5"),
        ("reset_gate gate api", {}, "Gate api: nothing had been set."),
    ],
)
def test_each_act_is_confirmed_done_and_logged(
    visitor: Visitor, busy: Queue, do: str, fields: dict[str, Any], notice: str
) -> None:
    question, _ = visitor.ask(do)
    assert "?" in question

    assert notice in visitor.do(do, back=PAGE, **fields)

    entry = busy.inspector.log()[-1]
    assert (entry.move, entry.fields["who"]) == (f"act {do.split()[0]}", "dashboard")


def test_a_form_shows_the_present_limits_and_refuses_wrong_ones(visitor: Visitor, busy: Queue) -> None:
    question, hidden = visitor.ask("set_gate gate api")
    assert 'placeholder="2"' in question
    assert 'placeholder="6,000 a minute"' in question

    for fields, words in (
        ({"rate": "fast"}, "is not a rate; write 10/s"),
        ({"concurrency": "many"}, "is not a whole number; 0 is no limit"),
        ({}, "no limit was given"),
    ):
        answer = visitor.post("/queues/mail/act", hidden | fields)
        assert answer.status_code == 400
        assert words in answer.text
