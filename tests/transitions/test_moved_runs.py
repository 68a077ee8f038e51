"""Runs that are exported from one queue and imported into another continue there."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import ClaimedJob, Discard
from schedq.inspect.export import exported
from schedq.model.runs import Memo
from schedq.transitions import run
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.run_scenes import PAID, message, running, step, suspend, taken


def suspended(queue: Handle) -> ClaimedJob:
    """A run with a memo that waits for a message, and has another one."""
    job = running(queue)
    queue._ask(run.step(queue.settings, job, "charge", step("paid")))
    message(queue, job.id, "news", "old")
    suspend(queue, job, PAID)
    return job


def moved(old: Handle, new: Handle, job_id: str) -> dict[str, Any]:
    """Export and import it; returns the entry."""
    record = old.get_job(job_id)
    entry = exported(record, record.status)
    assert new.inspector.import_jobs([entry]).stored == 1
    return entry


def test_a_suspended_run_waits_and_continues_in_the_other_queue(make_queue: MakeQueue, clock: Clock):
    old, new = make_queue(clock=clock), make_queue(clock=clock)
    job = suspended(old)

    moved(old, new, job.id)

    assert new.places() == {"delayed": [job.id]}
    assert message(new, job.id, value="yes")
    assert new.places() == {"pending": [job.id]}
    job = new.claim(0)
    assert Memo.read(new._ask(run.recall(new.settings, job))["step:charge"]) == Memo("step", "ok", "paid", 10, 20, 1, 1)
    assert taken(new, job).value == "yes"
    assert "inbox:news" in new.fields(job.id)


def test_a_run_that_was_running_waits_for_a_worker_and_not_for_messages(make_queue: MakeQueue):
    old, new = make_queue(), make_queue()
    job = suspended(old)
    message(old, job.id)
    old.claim(0)

    moved(old, new, job.id)

    assert new.places() == {"pending": [job.id]}
    assert "waits" not in new.fields(job.id)
    assert new.claim(0).run.startswith("v=1 ")


def test_a_finished_run_begins_anew(make_queue: MakeQueue):
    old, new = make_queue(), make_queue()
    job = suspended(old)
    old.run_now(job.id)
    old.fail(old.claim(0), Discard())

    entry = exported(old.get_job(job.id), "failed")

    assert "record" not in entry
    assert new.inspector.import_jobs([entry], finished=True).stored == 1
    assert not [name for name in new.fields(job.id) if ":" in name]


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ([1], "record must be an object of the fields of a run"),
        ({"status": "failed"}, "record must be an object of the fields of a run"),
        ({"run": 7}, "record must be an object of the fields of a run"),
        ({"run": "v=1", "step:charge": "no"}, "record: step:charge is not in the form that schedq writes"),
        ({"run": "v=1"} | {f"until:{n}": "1 1" for n in range(2000)}, "more than 2,000 fields"),
    ],
)
def test_a_record_that_schedq_did_not_write_is_refused(queue: Handle, record: object, complaint: str):
    entry = {"id": "j1", "payload": 1, "state": "pending", "record": record}

    found = queue.inspector.import_jobs([entry])

    assert found.stored == 0
    assert complaint in found.refused[0]
