"""What pages say; all of it without JavaScript."""

from __future__ import annotations

import json
import math
import re
from html import unescape
from typing import Any

import pytest
import redis

from schedq import Queue
from schedq.dashboard import queue_pool
from schedq.dashboard.charts import chart, rates, scale, thinned
from schedq.dashboard.pages import distinctive
from schedq.model import outcome
from schedq.transitions import announce
from tests.cli.scenes import beat
from tests.dashboard.conftest import Visitor
from tests.inspect.scenes import report as count
from tests.servers import Server

PATHS = (
    "",
    "/jobs",
    "/jobs?state=failed",
    "/failed",
    "/delayed",
    "/schedules",
    "/gates",
    "/batches",
    "/workers",
    "/log",
)


def text_of(html: str) -> str:
    """The words of a page."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def test_the_first_page_says_what_to_do_when_there_is_nothing(visitor: Visitor, raw: redis.Redis):
    assert "No queues yet" in visitor.page("/")


def test_the_first_page_has_a_row_for_each_queue(visitor: Visitor, queue: Queue, store: Server):
    queue.enqueue_many([1, 2, 3])
    queue.pause()
    with Queue("other", redis=store.own_url) as other:
        other.enqueue(1, delay=60)

    page = text_of(visitor.page("/"))

    assert re.search(r"mail paused [\d.]+ m?s no worker 3 0 0 0 0", page), page
    assert re.search(r"other 0 1 0 0 0", page), page


def test_stuck_slots_are_named_on_the_pages_of_a_queue_and_its_workers(visitor: Visitor, queue: Queue):
    jobs = '[{"id": "j-1", "queue": "mail", "task": "<render>", "why": "timed out", "since_ms": 1}, {"queue": 5}]'
    beat(queue, "w-1", running=0, concurrency=2, stuck=2, stuck_jobs=jobs)
    beat(queue, "w-2", running=0, concurrency=2, stuck=1, stuck_jobs="[]")

    page = text_of(visitor.page("/queues/mail"))
    workers = text_of(visitor.page("/queues/mail/workers"))

    assert "worker w-1 is stuck: handlers that do not end hold all 2 slots" in page
    assert "w-2 is stuck" not in page
    assert "w-1 2 stuck" in workers
    assert "<render>, stuck: timed out" in workers
    assert "w-2 1 stuck" in workers


def test_paused_tasks_are_named_and_every_task_has_its_buttons(visitor: Visitor, queue: Any):
    queue.enqueue_many([{"task": "send"}, {"task": "report"}])
    count(queue, "send", completed=1)
    queue.pause(task="report & <more>")

    page, overview = visitor.page("/queues/mail"), visitor.page("/")

    assert "task report &amp; &lt;more&gt; paused" in re.sub(r"</?bdi>", "", page)
    for do in ("pause_task task send", "cancel_task task send", "resume_task task report &amp; &lt;more&gt;"):
        assert f'value="{do}"' in page
    assert 'value="pause_task task report' not in page
    assert "1 paused task" in overview


def test_the_lag_of_an_outbox_is_shown(visitor: Visitor, queue: Any):
    assert "outbox" not in visitor.page("/queues/mail")
    now = queue.stats().now_ms

    def report(**facts: int) -> tuple[str, str]:
        given = json.dumps({"held": 0, "unsent": 0, "oldest_ms": 0, "at_ms": now} | facts)
        queue.connections.blocking.ask(announce.report_outbox(queue.settings, "outbox", given))
        return text_of(visitor.page("/queues/mail")), text_of(visitor.page("/"))

    page, overview = report()
    assert "outbox lag –" in page
    assert "outbox" not in overview
    page, overview = report(unsent=7, oldest_ms=now - 5_400_000)
    assert re.search(r"outbox lag 1 h 30 min , 7 unsent rows", page), page
    assert "outbox 1 h 30 min behind" in overview
    page, overview = report(unsent=1, held=1, at_ms=now - 5_400_000)
    assert "1 held outbox row" in page and "reported 1 h 30 min ago" in page
    assert "1 held outbox row" in overview


def test_a_damaged_queue_does_not_hide_the_others(visitor: Visitor, queue: Queue, raw: redis.Redis, store: Server):
    queue.enqueue(1)
    with Queue("other", redis=store.own_url) as other:
        other.enqueue(1)
    raw.delete("queue:other:pending")
    raw.set("queue:other:pending", "x")

    page = text_of(visitor.page("/"))

    assert "queue:other:pending" in page
    assert "mail no worker 1" in page
    assert visitor.get("/queues/other").status_code == 409


def test_a_missing_queue_is_reported(visitor: Visitor, queue: Queue):
    queue.enqueue(1)

    assert "Nothing is stored about queue mial; did you mean mail?" in visitor.page("/queues/mial")
    assert "Nothing is stored" not in visitor.page("/queues/mail")


def test_the_number_of_kept_records_is_shown_with_the_total(visitor: Visitor, queue: Any):
    for _ in range(3):
        queue.enqueue(1)
        queue.complete(queue.claim(0))
    assert "so far" not in visitor.page("/queues/mail")

    queue.purge()

    assert ">of 3 so far</small>" in visitor.page("/queues/mail")


def test_a_job_that_expires_says_when(visitor: Visitor, queue: Any):
    job_id = queue.enqueue("waits", expires=3600)

    page = text_of(visitor.page(f"/queues/mail/jobs/{job_id}"))

    assert re.search(r"it expires in (59 min|1 h).* Expires \d{4}-", page), page


def test_a_unique_key_is_shown_with_what_it_means_and_leads_to_its_jobs(visitor: Visitor, queue: Any):
    queue.enqueue("other", unique="nightly:2")
    job_id = queue.enqueue("waits", unique="<nightly> & co")

    html = visitor.page(f"/queues/mail/jobs/{job_id}")
    link = re.search(r'href="([^"]*unique=[^"]*)"', html)

    assert link
    assert "Unique key <nightly> & co held until it has ended; another call returns this job" in text_of(html)
    assert "another call with it returns this job" in text_of(html)
    found = visitor.page(unescape(link[1]))
    assert (found.count('name="ids"'), job_id in found) == (1, True)


def test_a_job_is_shown_with_its_headers(visitor: Visitor, queue: Any, raw: redis.Redis):
    job_id, plain = queue.enqueue("mail", headers={"tenant": "<acme>"}), queue.enqueue("plain")

    assert 'Headers { "tenant": "<acme>" }' in text_of(visitor.page(f"/queues/mail/jobs/{job_id}"))
    assert "Headers" not in text_of(visitor.page(f"/queues/mail/jobs/{plain}"))
    raw.hset(queue.settings.keys.job(job_id), "headers", "what is this")
    assert "Headers what is this" in text_of(visitor.page(f"/queues/mail/jobs/{job_id}"))


def test_a_schedule_is_shown_with_the_headers_of_its_jobs(visitor: Visitor, queue: Queue):
    queue.schedules.upsert("nightly", cron="0 3 * * *", task="t", headers={"tenant": "acme"})

    assert 'Headers { "tenant": "acme" }' in text_of(visitor.page("/queues/mail/schedules/nightly"))


def test_a_job_shows_how_long_its_record_is_kept(visitor: Visitor, queue: Any):
    job_id = queue.enqueue("waits", failed_ttl=3600)

    page = text_of(visitor.page(f"/queues/mail/jobs/{job_id}"))

    assert "failed_ttl 1 h" in page
    assert "completed_ttl 1 h" not in page


def test_a_job_is_shown_with_all_that_happened_to_it(visitor: Visitor, queue: Any):
    job_id = queue.enqueue({"task": "send", "args": ["ada"]}, max_attempts=1)
    try:
        raise ValueError("no such user")
    except ValueError as error:
        queue.fail(queue.claim(), error)

    page = text_of(visitor.page(f"/queues/mail/jobs/{job_id}"))

    assert re.search(r"It failed .* after 1 attempt with ValueError: no such user", page), page
    assert '"args": [ "ada" ]' in page
    assert "Traceback (most recent call last)" in page
    assert re.search(r"enqueued .* attempt 1: failed after", page), page


@pytest.mark.parametrize("job_id", ["unknown", "a" * 64])
def test_the_page_of_a_missing_job_says_why(job_id: str, visitor: Visitor, queue: Queue):
    answer = visitor.get(f"/queues/mail/jobs/{job_id}")

    assert (answer.status_code, job_id in answer.text) == (404, True)


@pytest.mark.parametrize("path", ["/queues/a:b", "/queues/mail/jobs/a*b", "/queues/%20", "/queues/mail/jobs?cursor=x"])
def test_names_that_can_not_be_are_refused_in_words(path: str, visitor: Visitor, queue: Queue):
    answer = visitor.get(path)

    assert answer.status_code == 400
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("path", ["/nothing", "/queues", "/queues/mail/nothing", "/static/../signing.py", "/errands/x"])
def test_a_missing_page_is_reported(path: str, visitor: Visitor):
    assert visitor.get(path).status_code == 404


def test_a_filter_finds_jobs_and_leads_on(visitor: Visitor, queue: Queue):
    queue.enqueue_many([{"task": "send" if n % 2 else "render", "args": [n]} for n in range(240)])

    first = visitor.page("/queues/mail/jobs?task=send&limit=100")
    ahead = re.search(r'href="([^"]*cursor=[^"]*)"', first)
    assert ahead
    second = visitor.page(unescape(ahead[1]))

    assert (first.count('name="ids"'), second.count('name="ids"')) == (100, 20)
    assert "None of the 240 jobs" in visitor.page("/queues/mail/jobs?task=nobody")


def test_failed_jobs_are_grouped_by_what_went_wrong(visitor: Visitor, queue: Any):
    queue.enqueue_many([1, 2, 3, 4], max_attempts=1)
    for error in ("timeout after 3 s", "timeout after 45 s", "disk full", "timeout after 7 s"):
        queue.fail(queue.claim(), error)

    page = text_of(visitor.page("/queues/mail/failed"))

    assert re.search(r"timeout after <n> s .* 3 .* disk full 1", page), page


def test_what_comes_is_a_picture(visitor: Visitor, queue: Queue):
    queue.enqueue_many([{"n": n} for n in range(7)], delay=600)
    queue.schedules.upsert("often", cron="*/5 * * * *", task="t")

    page = visitor.page("/queues/mail/delayed?window=1h")

    assert "7 delayed jobs" in unescape(page)
    assert len(re.findall(r'<rect class="blue"', page)) >= 10
    assert re.search(r"<b>7</b> delayed jobs and <b>1[1-3]</b> slots", page)


def test_schedules_show_their_next_slots_in_their_own_zone(visitor: Visitor, queue: Queue):
    queue.schedules.upsert("nightly", cron="0 3 * * *", tz="Asia/Tokyo", task="t")

    assert len(re.findall(r"03:00:00 \+0900", visitor.page("/queues/mail/schedules"))) == 3
    page = text_of(visitor.page("/queues/mail/schedules/nightly"))
    assert len(re.findall(r"03:00:00 \+0900", page)) == 12
    assert visitor.get("/queues/mail/schedules/nobody").status_code == 404


def test_pages_read_as_much_of_a_long_queue_as_of_a_short_one(
    visitor: Visitor, queue: Any, store: Server, monkeypatch: pytest.MonkeyPatch
):
    """The cost of a page does not grow with the backlog."""
    monkeypatch.setattr(queue_pool, "_RELOAD_S", math.inf)  # settings are read again after 30 s,
    monkeypatch.setattr(queue_pool, "_IDLE_S", math.inf)  # and connections closed after a minute
    monkeypatch.setattr(queue_pool.Late, "get", lambda *_: None)  # what is made in the background is part of no page

    def asked() -> dict[str, list[str]]:
        """The commands for each page: the fewest of three times, as other tests' pages may still be at work."""
        counts: dict[str, list[str]] = {}
        for path in [*PATHS] * 3:
            visitor.page(f"/queues/mail{path}")
            with store.requests() as requests:
                visitor.page(f"/queues/mail{path}")
            commands = sorted(request.words[0] for request in requests)
            counts[path] = min(commands, counts.get(path, commands), key=len)
        return counts

    fill = lambda count: (  # noqa: E731
        queue.enqueue_many([{"n": n} for n in range(count)]),
        queue.enqueue_many([{"n": n} for n in range(count)], delay=5400),
    )
    fill(600)
    few = asked()
    fill(6000)

    assert asked() == few


def test_static_files_are_cached_by_browsers_until_they_change(visitor: Visitor):
    first = visitor.get("/static/dashboard.js")
    again = visitor.get("/static/dashboard.js", headers={"if-none-match": first.headers["etag"]})

    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")


# -- charts


def test_an_axis_has_room_and_round_numbers():
    assert [scale(most) for most in (0, 1, 7, 99, 0.03)] == [(1, 1), (1.0, 0.5), (10, 5), (100, 50), (0.03, 0.01)]


def test_a_line_keeps_its_peaks_when_it_is_thinned():
    points = [(n, 100.0 if n == 5001 else 1.0) for n in range(10_000)]

    thin = thinned(points, 0, 10_000)

    assert len(thin) <= 250
    assert (5001, 100.0) in thin


def test_a_chart_has_a_text_for_screen_readers():
    made = chart("Depth", {("pending", "blue"): [(0, 1.0), (50, None), (100, 4.0)]}, 0, 100)

    assert made.alt_text == "Depth: now pending 4"
    assert made.lines[0].path.count("M") == 2
    assert chart("Depth", {("pending", "blue"): []}, 0, 100).is_empty
    assert rates([], "completed") == []


def test_a_group_is_found_again_by_what_its_errors_have_in_common():
    assert distinctive("timeout after <n> s on host <id>") == "timeout after"
    assert distinctive("<n>") == ""


def test_a_task_that_no_worker_has_is_named_on_the_pages_of_the_queue_and_the_job(visitor: Visitor, queue: Any):
    job_id = queue.enqueue({"task": "<resize>"})
    queue.settle(outcome.unknown(queue.claim(0), "this worker has no task '<resize>'", queue.settings))

    page = text_of(visitor.page("/queues/mail"))
    jobs = text_of(visitor.page("/queues/mail/jobs?state=delayed"))
    job = text_of(visitor.page(f"/queues/mail/jobs/{job_id}"))

    assert re.search(r"no worker has the task <resize> : 1 job put back in the last \d", page), page
    assert "no worker has had its task" in jobs
    assert re.search(r"No worker that claimed it in the last .* had the task '<resize>'", job), job


def test_a_running_job_that_was_asked_to_stop_shows_it_in_color(visitor: Visitor, queue: Queue):
    job_id = queue.enqueue(1)
    assert queue.claim(0)
    queue.cancel(job_id)

    assert re.search(r'<li class="warn">\s*<b>asked to stop</b>', visitor.page(f"/queues/mail/jobs/{job_id}"))
