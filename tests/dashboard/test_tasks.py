"""The pages of tasks, the log's filters, and the form that enqueues a job; all of it without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest

from schedq import Queue, Rate
from tests.cli.scenes import beat
from tests.dashboard.conftest import Served, Visitor
from tests.dashboard.test_pages import text_of
from tests.inspect.scenes import report


@pytest.fixture
def busy(queue: Any) -> Any:
    """A queue whose task has figures, a gate, a failed job and a delayed one."""
    queue.gates.set("send", concurrency=2, rate=Rate(100, per=60))
    queue.enqueue({"task": "send", "args": ["ada"]}, job_id="bad", max_attempts=1, headers={"tenant": "a"}, timeout=9)
    queue.fail(queue.claim(timeout_ms=0), "no <such> user\nsecond line")
    queue.enqueue({"task": "send"}, job_id="later", delay=60)
    report(queue, "send", completed=6, failed=1, retried=3, run_ms=[100] * 9 + [3000], late_ms=[0] * 10)
    return queue


def test_the_page_of_a_task_shows_its_figures_limits_errors_and_jobs(visitor: Visitor, busy: Any) -> None:
    beat(busy, "w-1", running=0, tasks='["send"]')
    html = visitor.page("/queues/mail/tasks/send")
    page = text_of(html)

    for words in (
        "10 attempts",
        "1 failed 3 retried errors 40 %",
        "longest 111 ms / 3.0 s / 3.0 s",
        "Attempts: 10 attempts: 6 completed, 1 failed, 3 retried",
        "91 ms to 128 ms: 9 attempts",
        "Attempts 3, the queue's",
        "Gate send , concurrency 2 (set by an operator), rate 100 a minute",
        "Workers 1",
        "bad no <such> user",
    ):
        assert words in page, (words, page)
    assert "second line" not in page
    assert html.count("<svg") == 3
    assert re.search(
        r'<rect class="zone"[^>]* data-at="[^"]+"><title>\d\d-\d\d \d\d:\d\d UTC, 5 min: 6 completed', html
    )
    assert 'value="pause_task task send"' in html
    assert "Task send is paused." in visitor.do("pause_task task send", back="/queues/mail/tasks/send")
    assert 'value="resume_task task send"' in visitor.page("/queues/mail/tasks/send")


def test_tasks_are_listed_and_linked(visitor: Visitor, busy: Any) -> None:
    busy.pause(task="a/b & c?")
    report(busy, "", completed=1, run_ms=[1], late_ms=[0])

    page = visitor.page("/queues/mail/tasks")

    assert re.search(r"send 10 [\d.,]+ 1 3 40 %", text_of(page)), text_of(page)
    assert "no task call" in page
    (link,) = re.findall(r'href="([^"]*a%2Fb[^"]*)"', page)
    assert "Task a/b & c? of mail" in unescape(visitor.page(link))
    assert 'href="/queues/mail/tasks/send"' in visitor.page("/queues/mail")
    assert visitor.get("/queues/mail/tasks/unknown").status_code == 404


def test_a_task_that_has_not_run_lately_shows_the_time_in_which_it_ran(visitor: Visitor, busy: Any, raw: Any) -> None:
    for field in raw.hkeys("queue:mail:task_stats"):
        if not field.startswith("t:"):
            raw.hdel("queue:mail:task_stats", field)

    for path in ("/queues/mail/tasks/send", "/queues/mail/tasks"):
        assert 'aria-current="true">ever</a>' in visitor.page(path)
        assert 'aria-current="true">24h</a>' in visitor.page(f"{path}?window=24h")


def test_charts_of_a_new_queue_show_ten_minutes_and_their_values(visitor: Visitor, busy: Any, raw: Any) -> None:
    now = busy.stats().now_ms

    def sample(ago_s: int, done: int) -> None:
        raw.lpush("queue:mail:samples", f'{{"at_ms": {now - ago_s * 1000}, "completed_total": {done}}}')

    sample(300, 0)
    sample(290, 70)
    page = visitor.page("/queues/mail")
    assert 'aria-current="true">10m</a>' in page
    assert re.search(r"<title>\d\d:\d\d UTC: enqueued 0, completed 7</title>", page)

    raw.delete("queue:mail:samples")
    sample(4000, 0)
    assert 'aria-current="true">1h</a>' in visitor.page("/queues/mail")


def test_the_log_is_filtered_and_read_from_both_ends(visitor: Visitor, busy: Queue) -> None:
    for n in range(250):
        busy.inspector.note(f"act{n % 2}", f"note {n};", who="ada" if n % 10 else "bob")

    def notes(path: str) -> list[str]:
        return re.findall(r"note \d+(?=;)", visitor.page(path))

    def follow(words: str, path: str = "/queues/mail/log") -> str:
        (address,) = re.findall(rf'<a href="([^"]*)">{words}</a>', visitor.page(path))
        return "/queues/mail/log" + unescape(address)

    log = "/queues/mail/log"
    assert (notes(log)[0], notes(log)[-1]) == ("note 249", "note 150")
    oldest = follow("Oldest")
    assert notes(oldest)[-1] == "note 0"
    assert notes(follow("Older"))[0] == "note 149"
    assert notes(follow("Newer", oldest))[-1] == f"note {int(notes(oldest)[0][5:]) + 1}"
    assert follow("Newest", oldest) == f"{log}?limit=100"
    assert ">Oldest<" not in visitor.page(oldest) and ">Newest<" not in visitor.page(log)

    assert notes(f"{log}?who=bob")[:2] == ["note 240", "note 230"] and len(notes(f"{log}?who=bob")) == 25
    assert re.findall(r"failed bad|completed", text_of(visitor.page(f"{log}?kind=failed").partition("live_log")[2]))[
        :2
    ] == ["failed bad"]
    assert notes(f"{log}?kind=failed") == []
    busy.pause(task="other")
    assert "task other" in visitor.page(f"{log}?kind=act") and "bad" not in visitor.page(f"{log}?kind=act")
    assert "bad" in visitor.page(f"{log}?task=send") and "bad" not in visitor.page(f"{log}?task=other")


def form(visitor: Visitor, path: str) -> dict[str, str]:
    """The fields of the form as a page shows it."""
    page = visitor.page(path)
    fields = re.findall(r'<input[^>]*name="(\w+)" value="([^"]*)"', page)
    fields += re.findall(r'<textarea name="(\w+)"[^>]*>\n([^<]*)</textarea>', page)
    return {name: unescape(value) for name, value in fields}


def test_a_copy_of_a_job_is_edited_and_enqueued_with_its_options(visitor: Visitor, busy: Any) -> None:
    assert 'href="/queues/mail/new?job=bad"' in visitor.page("/queues/mail/jobs/bad")
    fields = form(visitor, "/queues/mail/new?job=bad")
    edited = fields | {"payload": fields["payload"].replace("ada", "eve")}

    for _ in range(2):  # a form that is sent twice enqueues once
        answer = visitor.post("/queues/mail/new", edited)
        assert answer.status_code == 303, answer.text

    job_id = answer.headers["location"].rpartition("/")[2]
    assert f"Job {job_id} was enqueued, edited from job bad." in visitor.page(answer.headers["location"])
    job, old = busy.get_job(job_id), busy.get_job("bad")
    assert job.payload == {"task": "send", "args": ["eve"]} and old.payload["args"] == ["ada"]
    assert (job.max_attempts, job.headers, job.fields["timeout_ms"]) == (1, {"tenant": "a"}, "9000")
    assert busy.stats().pending_depth == 1
    entry = busy.inspector.log()[-1]
    assert (entry.move, entry.note) == ("act enqueue", f"job {job_id}, edited from job bad")
    assert entry.fields["who"] == "dashboard"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"payload": '{"a": '}, "the payload is not JSON: "),
        ({"task": "send", "args": '{"a": 1}'}, "args is a JSON array"),
        ({"task": "send", "kwargs": "ada"}, "kwargs is not JSON"),
        ({"task": "send", "payload": "1"}, "give a task or a payload, not both"),
        ({"task": "a\x00b"}, "task must be a task"),
        ({}, "nothing to enqueue"),
        ({"payload": "1", "delay": "soon"}, "is not a duration"),
        ({"payload": "1", "delay": "5m", "run_at": "2030-01-01T09:00Z"}, "not both"),
        ({"payload": "1", "run_at": "2030-01-01T09:00"}, "is not a time with an offset"),
    ],
)
def test_a_wrong_form_says_why_and_keeps_what_was_typed(
    typed: dict[str, str], message: str, visitor: Visitor, busy: Any
) -> None:
    answer = visitor.post("/queues/mail/new", form(visitor, "/queues/mail/new") | typed)

    assert answer.status_code == 400
    assert message in unescape(answer.text)
    assert all(text.replace("\x00", "") in unescape(answer.text).replace("\x00", "") for text in typed.values())
    assert busy.stats().pending_depth == 0


def test_a_task_is_enqueued_for_later(visitor: Visitor, busy: Any) -> None:
    fields = form(visitor, "/queues/mail/new?task=send")
    assert fields["task"] == "send"
    fields |= {"args": '["eve"]', "kwargs": '{"copies": 2}', "run_at": "2035-01-01T09:00+01:00"}

    place = visitor.post("/queues/mail/new", fields).headers["location"]

    job = busy.get_job(place.rpartition("/")[2])
    assert job.payload == {"task": "send", "args": ["eve"], "kwargs": {"copies": 2}}
    assert job.run_at_ms == 2_051_251_200_000


def test_a_read_only_dashboard_has_no_form_that_enqueues(serve: Callable[..., Served], busy: Any) -> None:
    reader = Visitor(serve(read_only=True).url)

    for path in ("", "/tasks", "/tasks/send", "/jobs/bad"):
        assert "/new" not in reader.page(f"/queues/mail{path}")
    assert reader.get("/queues/mail/new").status_code == 404
    fields = {"payload": "1", "csrf": "0" * 64}
    assert reader.post("/queues/mail/new", fields).status_code == 403
    assert busy.stats().pending_depth == 0
