"""Actions from a browser: confirmed first, then done, and logged with the user's name."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import redis

from schedq import Queue
from schedq.dashboard import actions
from schedq.dashboard.action_table import ACTIONS
from tests.dashboard.conftest import Served, Visitor
from tests.waiting import until

Serve = Callable[..., Served]


def failed(queue: Any, count: int, error: str = "smtp timeout") -> Any:
    """Jobs that have failed for good."""
    ids = queue.enqueue_many([{"n": n} for n in range(count)], max_attempts=1)
    for _ in range(count):
        assert queue.fail(queue.claim(timeout_ms=0), error)
    return ids


def log_of(raw: Any) -> list[dict[str, str]]:
    """What operators did."""
    return [fields for _, fields in raw.xrange("queue:mail:log") if "who" in fields]


def test_a_failed_job_is_requeued_once_that_is_confirmed(visitor: Visitor, queue: Queue, raw: redis.Redis):
    (job_id,) = failed(queue, 1)

    question, _ = visitor.ask(f"requeue job {job_id}")
    assert f"Requeue job {job_id}?" in question
    assert queue.get_job(job_id).status == "failed"

    page = visitor.do(f"requeue job {job_id}", back=f"/queues/mail/jobs/{job_id}")

    assert "1 job requeued." in page
    assert queue.get_job(job_id).status == "pending"
    (line,) = log_of(raw)
    assert (line["move"], line["count"], line["who"]) == ("act requeue", "1", "dashboard")
    assert job_id in line["note"]


def test_a_notice_is_shown_once(visitor: Visitor, queue: Queue):
    (job_id,) = failed(queue, 1)

    assert "1 job requeued." in visitor.do(f"requeue job {job_id}")

    assert "1 job requeued." not in visitor.page("/queues/mail")


def test_five_hundred_jobs_are_requeued_by_one_filter(visitor: Visitor, queue: Queue, raw: redis.Redis):
    failed(queue, 500)
    failed(queue, 3, "another error")

    question, _ = visitor.ask("requeue matching", state="failed", error="smtp")
    page = visitor.do("requeue matching", state="failed", error="smtp", back="/queues/mail/jobs?state=failed")

    assert "Requeue 500 failed jobs of queue mail?" in question
    assert "500 jobs requeued." in page
    assert (queue.stats()["pending_depth"], queue.stats()["failed_depth"]) == (500, 3)
    assert [line["count"] for line in log_of(raw)] == ["500"]


def test_so_are_those_that_were_ticked(visitor: Visitor, queue: Queue):
    ids = failed(queue, 500)

    question, _ = visitor.ask("requeue selected", ids=ids)
    page = visitor.do("requeue selected", ids=ids)

    assert "Requeue 500 jobs of queue mail?" in question
    assert "500 jobs requeued." in page
    assert queue.stats()["pending_depth"] == 500


def test_a_group_of_errors_is_requeued_together(visitor: Visitor, queue: Queue):
    failed(queue, 2, "disk full on node 7")
    failed(queue, 1, "no such user")
    page = visitor.page("/queues/mail/failed")
    (do,) = set(re.findall(r'value="(requeue error disk [^"]*)"', page))

    assert "with “disk full on node” in the error" in visitor.ask(do)[0]
    assert "2 jobs requeued." in visitor.do(do)
    assert queue.stats()["failed_depth"] == 1


@pytest.mark.parametrize(
    ("do", "fields", "status"),
    [
        ("run_now job {id}", {}, "pending"),
        ("cancel job {id}", {}, "cancelled"),
        ("cancel selected", {"ids": "{id}"}, "cancelled"),
        ("run_now matching", {"state": "delayed"}, "pending"),
    ],
)
def test_a_delayed_job_obeys(do: str, fields: dict[str, str], status: str, visitor: Visitor, queue: Queue):
    job_id = queue.enqueue(1, delay=3600)

    visitor.do(do.format(id=job_id), **{name: text.format(id=job_id) for name, text in fields.items()})

    assert queue.get_job(job_id).status == status


def test_a_delayed_job_is_given_another_time(visitor: Visitor, queue: Queue):
    job_id = queue.enqueue(1, delay=60)
    first = queue.list_delayed()[0].run_at_ms

    visitor.do(f"reschedule job {job_id}", delay="1d12h")

    assert queue.list_delayed()[0].run_at_ms > first + 36 * 3_500_000


def test_an_invalid_time_is_refused_in_words(visitor: Visitor, queue: Queue):
    job_id = queue.enqueue(1, delay=60)

    answer = visitor.post("/queues/mail/act", {"do": f"reschedule job {job_id}", "delay": "soon"})

    assert (answer.status_code, "is not a duration" in answer.text) == (400, True)


def test_a_job_is_deleted_and_one_that_moved_on_is_not(visitor: Visitor, queue: Any):
    (job_id,) = failed(queue, 1)
    queue.enqueue(2)
    running = queue.claim(timeout_ms=0)

    page = visitor.do("delete selected", ids=[job_id, running.id])

    assert "1 job deleted; 1 refused" in page
    assert queue.get_job(job_id) is None
    assert queue.complete(running)


def test_a_queue_is_paused_resumed_and_purged(visitor: Visitor, queue: Queue, raw: redis.Redis):
    queue.enqueue_many([1, 2, 3])

    visitor.do("pause")
    assert queue.stats()["paused_since_ms"]
    visitor.do("resume")
    assert queue.stats()["paused_since_ms"] is None
    assert "Purge queue mail: 3 jobs?" in visitor.ask("purge")[0]
    assert "3 jobs deleted." in visitor.do("purge")

    assert queue.stats()["pending_depth"] == 0
    assert [line["move"] for line in log_of(raw)] == ["act pause", "act resume", "act purge"]


def test_a_task_is_paused_resumed_and_its_waiting_jobs_cancelled(visitor: Visitor, queue: Queue, raw: redis.Redis):
    queue.enqueue_many([{"task": "send mail"}] * 3 + [{"task": "report"}])
    queue.enqueue({"task": "send mail"}, delay=60)

    assert "Pause task send mail?" in visitor.ask("pause_task task send mail")[0]
    assert queue.list_paused_tasks() == {}
    assert "Task send mail is paused." in visitor.do("pause_task task send mail")
    assert list(queue.list_paused_tasks()) == ["send mail"]
    assert "Cancel all waiting jobs of task send mail?" in visitor.ask("cancel_task task send mail")[0]
    assert "4 jobs cancelled." in visitor.do("cancel_task task send mail")
    visitor.do("resume_task task send mail")

    assert queue.list_paused_tasks() == {}
    assert (queue.stats()["pending_depth"], queue.stats()["delayed_depth"]) == (1, 0)
    lines = [(line["move"], line["count"]) for line in log_of(raw)]
    assert lines == [("act pause_task", "1"), ("act cancel", "4"), ("act resume_task", "1")]
    assert all("send mail" in line["note"] for line in log_of(raw))


def test_a_schedule_is_triggered_paused_and_resumed(visitor: Visitor, queue: Queue, raw: redis.Redis):
    queue.schedules.upsert("nightly", cron="0 3 * * *", task="nightly")

    assert "schedule nightly enqueued job nightly-" in visitor.do("trigger schedule nightly").lower()
    visitor.do("pause_schedule schedule nightly")
    assert queue.schedules.get("nightly").state == "paused"
    visitor.do("resume_schedule schedule nightly")

    assert queue.schedules.get("nightly").state == "active"
    assert queue.stats()["pending_depth"] == 1
    assert [line["count"] for line in log_of(raw)] == ["1", "1", "1"]


def test_a_missing_worker_is_reported(visitor: Visitor, queue: Queue):
    queue.enqueue(1)

    assert "Worker nobody is not running." in visitor.do("stop_worker worker nobody")


@pytest.mark.parametrize(
    "do",
    [
        "",
        "flushall",
        "requeue",
        "purge job 1",
        "requeue job",
        "requeue job a*b",
        "requeue selected",
        "requeue matching",
        "trigger schedule ../x",
        "pause_task",
        "pause_task task",
        "pause_task task \x07",
        "pause task send",
        "__class__ job 1",
    ],
)
def test_an_invalid_action_is_refused_before_anything_is_done(
    do: str, visitor: Visitor, queue: Queue, raw: redis.Redis
):
    failed(queue, 1)

    for step in ("confirm", "act"):
        answer = visitor.post(f"/queues/mail/{step}", {"do": do, "state": "pending"})
        assert answer.status_code == 400, (do, answer.text)

    assert log_of(raw) == []


def test_a_form_leads_back_to_its_queue_only(visitor: Visitor, queue: Queue):
    queue.enqueue(1)

    for back in ("//evil.example", "https://evil.example", "/queues/other", "/queues/mailbox", "/queues/mail/\n"):
        _, hidden = visitor.ask("pause", back=back)
        assert hidden["back"] == ["/queues/mail"], back


def test_read_only_has_no_route_that_acts_and_no_button(serve: Serve, queue: Queue, raw: redis.Redis):
    (job_id,) = failed(queue, 1)
    queue.enqueue(1, delay=60)
    queue.schedules.upsert("nightly", cron="0 3 * * *", task="nightly")
    queue.pause(task="nightly")
    queue.gates.set("api", concurrency=1)
    with queue.batch("b", queue.task(print)) as batch:
        batch.add([1])
    served = serve(read_only=True)
    visitor = Visitor(served.url)
    pages = ["", "/jobs?state=failed", f"/jobs/{job_id}", "/failed", "/delayed", "/schedules", "/gates", "/gates/api"]
    pages += ["/batches", "/batches/b", "/workers", "/log"]

    for page in pages:
        text = visitor.page(f"/queues/mail{page}")
        assert 'method="post"' not in text
        assert "<button" not in text.replace("<button>Filter</button>", "")

    # No page of it has a form's token, so one is made as its signer would.
    csrf = served.dashboard._rules.signer.form_token(visitor.http.cookies["schedq_form"])
    for do in ACTIONS:
        for step in ("confirm", "act"):
            answer = visitor.post(f"/queues/mail/{step}", {"do": f"{do} job {job_id}", "csrf": csrf})
            assert answer.status_code in (404, 405)
    assert visitor.post("/errands/x/stop", {"csrf": csrf}).status_code in (404, 405)
    assert queue.get_job(job_id).status == "failed"
    assert log_of(raw) == []


# -- acts that take long


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A dashboard that lets no browser wait; its actions on many jobs begin when the test sets the event."""
    monkeypatch.setattr(actions, "WAIT_S", 0)
    begins, run = threading.Event(), actions.BackgroundActions.run

    async def run_later(background: Any, action: Any, work: Any, wait_s: float) -> None:
        async def work_later(action: Any) -> Any:
            while not begins.is_set():
                await asyncio.sleep(0.005)
            return await work(action)

        await run(background, action, work_later, wait_s)

    monkeypatch.setattr(actions.BackgroundActions, "run", run_later)
    return begins


def with_word(page: str, word: str) -> str:
    """The page, if it has the word."""
    return page if word in page else ""


def test_a_long_action_continues_behind_a_page_that_shows_its_progress(
    held_back: threading.Event, visitor: Visitor, queue: Queue
):
    failed(queue, 700)

    page = visitor.do("requeue matching", state="failed")
    path = re.search(r'action="(/errands/[^/"]+)/stop"', page)
    assert path, page
    held_back.set()
    page = until(lambda: with_word(visitor.page(path[1]), "Continue"))

    assert re.search(r"done.*checked <b>700</b>.*done <b>700</b>.*refused <b>0</b>", page, re.DOTALL), page
    assert queue.stats()["pending_depth"] == 700


def test_a_long_action_can_be_stopped(held_back: threading.Event, visitor: Visitor, queue: Queue, raw: redis.Redis):
    failed(queue, 3000)
    page = visitor.do("delete matching", state="failed")
    path = re.search(r'action="(/errands/[^/"]+)/stop"', page)
    assert path, page
    held_back.set()
    until(lambda: queue.stats()["failed_depth"] < 3000)

    visitor.post(f"{path[1]}/stop", {})
    page = until(lambda: with_word(visitor.page(path[1]), "Continue"))

    state = re.search(r'class="tag \w+">(\w+)<', page)
    assert state
    left = queue.stats()["failed_depth"]
    assert state[1] == "stopped" or (state[1], left) == ("done", 0)  # it may have been quicker
    (line,) = log_of(raw)
    assert int(line["count"]) <= 3000 - left  # a batch that was in progress is done, and not counted


def test_only_so_many_run_at_a_time(visitor: Visitor, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(actions, "MOST_RUNNING", 0)
    failed(queue, 1)

    answer = visitor.post("/queues/mail/act", {"do": "requeue matching", "state": "failed"})

    assert (answer.status_code, queue.stats()["failed_depth"]) == (429, 1)


def test_an_error_of_a_long_action_is_shown(visitor: Visitor, queue: Queue, raw: redis.Redis):
    failed(queue, 1)
    csrf = visitor.token()
    raw.delete("queue:mail:pending")
    raw.set("queue:mail:pending", "of the wrong type")

    answer = visitor.post("/queues/mail/act", {"do": "requeue matching", "state": "failed", "csrf": csrf})

    assert (answer.status_code, "queue:mail:pending" in answer.text) == (409, True)
