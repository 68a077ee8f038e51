"""How far running jobs have come, on the pages of a job, of the running ones and of a queue."""

from __future__ import annotations

import re

import pytest

from schedq import Progress, Queue
from schedq.model.progress import ProgressReport
from schedq.transitions import renew
from tests.cli.scenes import claimed
from tests.dashboard.conftest import Visitor
from tests.dashboard.test_pages import text_of


def reporting(queue: Queue, job_id: str, progress: Progress, meta: str = "") -> None:
    """A running job that has reported something."""
    queue.enqueue({"task": "send"}, job_id=job_id)
    job = claimed(queue)
    numbers = (progress.done, progress.total, progress.note)
    queue._ask(renew.renew(queue.settings, (), [ProgressReport.of(job.id, job.claim_token, numbers, meta)]))


def test_a_jobs_page_shows_its_progress_and_meta(visitor: Visitor, queue: Queue):
    reporting(queue, "one", Progress(3, 10, "<b>rows</b>"), '{"page":"<i>1</i>"}')

    page = visitor.page("/queues/mail/jobs/one")

    assert '<progress max="1" value="0.3" aria-label="Progress"></progress>' in page
    assert re.search(r"Progress 3 of 10 \(30 %\), <b>rows</b> [\d.]+ m?s ago", text_of(page)), text_of(page)
    assert 'Meta { "page": "<i>1</i>" }' in text_of(page)
    assert "<b>rows" not in page
    assert "<i>1" not in page


@pytest.mark.parametrize("path", ["/queues/mail", "/queues/mail/jobs?state=processing"])
def test_running_jobs_have_a_bar_if_they_report(visitor: Visitor, queue: Queue, path: str):
    queue.enqueue({"task": "silent"})
    claimed(queue)
    assert "Progress" not in visitor.page(path)

    reporting(queue, "one", Progress(3, 10, "rows"))
    reporting(queue, "two", Progress(7777))
    page = visitor.page(path)

    assert page.count("<progress") == 1
    assert "30 % rows" in text_of(page)
    assert "7,777" in text_of(page)
    assert 'title="3 of 10 (30 %), rows"' in page


def test_a_job_that_reported_nothing_shows_nothing(visitor: Visitor, queue: Queue):
    queue.enqueue({"task": "silent"}, job_id="one")
    claimed(queue)

    page = visitor.page("/queues/mail/jobs/one")

    assert "Progress" not in page
    assert "Meta" not in page


def test_a_stored_progress_that_is_garbage_is_among_the_fields_only(visitor: Visitor, queue: Queue):
    queue.enqueue(1, job_id="one")
    job = claimed(queue)
    reporting_garbage = ProgressReport(job.id, job.claim_token, 0, '"done":"x"', "[1]", (None, ""))
    queue._ask(renew.renew(queue.settings, (), [reporting_garbage]))

    page = text_of(visitor.page("/queues/mail/jobs/one"))

    assert "Progress" not in page
    assert 'progress {"done":"x","attempt":1' in page
