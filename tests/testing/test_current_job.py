"""`current_job()` in a test works wherever it works in a worker."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from schedq import AttemptFacts, CallNext, current_job
from schedq.testing import as_job, run_due
from tests.conftest import MakeQueue
from tests.doors import Handle


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    return make_queue()


@pytest.mark.parametrize(
    ("job_id", "schedule", "slot_ms"),
    [
        ("every-hour-1767225600500", "every-hour", 1_767_225_600_500),
        ("every-hour-t0123456789abc", "", None),
        ("order-4711", "", None),
        ("1767225600500", "", None),
        ("order-999999999999999999", "", None),
    ],
)
def test_a_job_of_a_schedule_knows_its_slot(job_id: str, schedule: str, slot_ms: int | None) -> None:
    with as_job(job_id) as job:
        assert job.schedule == schedule
        assert job.slot == (slot_ms and datetime.fromtimestamp(slot_ms / 1000, UTC))


@pytest.mark.parametrize("has_hook", [False, True])
@pytest.mark.parametrize("has_middleware", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_current_job_works_in_handlers_hooks_and_middleware(
    queue: Handle, has_hook: bool, has_middleware: bool, is_async: bool
) -> None:
    seen: list[tuple[str, str]] = []

    def note(place: str) -> None:
        seen.append((place, current_job().id))

    def plain() -> None:
        note("task")
        current_job().progress(1, 2)

    async def awaited() -> None:
        plain()

    async def around(attempt: AttemptFacts, call_next: CallNext) -> object:
        note("middleware")
        return await call_next()

    if has_middleware:
        queue.queue.use(around)
    on_success = (lambda *_: note("hook")) if has_hook else None
    job = queue.queue.task(name="note", on_success=on_success)(awaited if is_async else plain).enqueue()

    run_due(queue.queue)

    progress = job.progress()
    assert progress is not None
    assert (progress.done, progress.total) == (1, 2)
    places = ["middleware"] * has_middleware + ["task"] + ["hook"] * has_hook
    assert sorted(seen) == sorted((place, job.id) for place in places)
