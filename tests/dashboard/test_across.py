"""What the overview says of all queues, the pages across queues, and the search."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from schedq import Queue
from schedq.dashboard import search
from schedq.dashboard.across import graph, summed
from tests.cli.scenes import beat
from tests.dashboard.conftest import Visitor
from tests.dashboard.test_pages import text_of
from tests.inspect.scenes import report
from tests.servers import Server

Make = Callable[[str], Any]


@pytest.fixture
def make(store: Server, raw: redis.Redis) -> Iterator[Make]:
    """Makes queues, on an empty Redis."""
    made: list[Queue] = []

    def make(name: str) -> Queue:
        made.append(Queue(name, redis=store.own_url))
        return made[-1]

    yield make
    for queue in made:
        queue.close()


def fail(queue: Any, error: str, **options: Any) -> str:
    """A job that failed; it was the only one."""
    job_id = queue.enqueue({"task": "send", "args": ["ada@example.org"]}, max_attempts=1, **options)
    queue.fail(queue.claim(timeout_ms=0), error)
    return str(job_id)


# -- the overview


def test_the_overview_names_what_fails_waits_runs_and_comes_in_all_queues(visitor: Visitor, make: Make):
    mail, shop = make("mail"), make("shop")
    report(mail, "send", completed=7, failed=2)
    report(shop, "<pay>", failed=5)
    running = mail.enqueue({"task": "send"})
    mail.claim(timeout_ms=0)
    waiting = shop.enqueue({"task": "<pay>"})
    shop.schedules.upsert("nightly", cron="0 3 * * *", task="report")
    for queue in (mail, shop):
        beat(queue, "w-of-both", concurrency=8, running=1)

    page = text_of(visitor.page("/"))

    assert re.search(r"Failing tasks, last \d+ min .* <pay> shop 5 0 send mail 2 7", page), page
    assert re.search(rf"Oldest waiting Job Queue Task For {waiting} shop <pay> .* Running longest", page), page
    assert re.search(rf"Running longest Job Queue Task For {running} mail send", page), page
    assert re.search(r"Next schedules .* nightly shop in \d+ ", page), page
    assert re.search(r"Workers Worker Queues Runs w-of-both mail, shop 1 of 8", page), page
    assert re.search(r"1 pending 0 delayed 1 processing .* memory [\d.]+ [kM]B , no maxmemory PING [\d.]+ ms", page), (
        page
    )
    assert "1 worker " in page


def test_findings_come_late_and_without_a_write(visitor: Visitor, make: Make, store: Server):
    make("mail").enqueue(1)
    until = time.monotonic() + 60

    with store.requests() as requests:
        page = visitor.page("/")
        while "Examined at" not in page and time.monotonic() < until:
            assert "These queues are being examined" in page
            time.sleep(0.1)
            page = visitor.page("/")

    assert "no worker is alive; 1 pending" in page
    assert not [words for words in map(str, requests) if ":probe:" in words]


def test_the_graph_sums_queues_that_were_sampled_at_different_times():
    def row(began_ms: int, *counts: int) -> dict[str, Any]:
        at = [(began_ms + 10_000 * n, count) for n, count in enumerate(counts)]
        samples = [SimpleNamespace(at_ms=ms, completed_total=count, failed_total=0) for ms, count in at]
        return {"samples": samples, "stats": {"completed_total": counts[-1], "failed_total": 0}, "now_ms": 60_000}

    points = summed([row(0, 0, 100, 200), row(5_000, 0, 50, 50, 0)], "completed_total", 60_000, 60_000)
    drawn = graph([row(0, 0, 100, 200)], 60_000, 60_000)

    assert [(ms, round(value or 0, 3)) for ms, value in points[:3]] == [(20_000, 12.5), (30_000, 0), (40_000, 0)]
    assert summed([], "completed_total", 60_000, 60_000) == [(10_000 * n, None) for n in range(2, 7)]
    assert drawn.alt_text == "Jobs per second: now 0 completed, 0 failed"


# -- pages across queues


def test_pages_across_queues_show_all_of_them_and_filter_by_name(visitor: Visitor, make: Make, raw: redis.Redis):
    mail, shop = make("mail"), make("web-shop")
    failures = fail(mail, "smtp timeout after 3 s"), fail(shop, "<disk> full")
    for queue in (mail, shop):
        queue.schedules.upsert(f"of-{queue.name}", cron="0 3 * * *", task="report")
        beat(queue, f"w-{queue.name}")
        queue.enqueue_many([{"n": n} for n in range(12)])
    raw.sadd("schedq:queues", "damaged")
    raw.set("queue:damaged:pending", "x")

    for path, of_mail, of_shop in (
        ("/jobs?state=failed", failures[0], failures[1]),
        ("/failed", "smtp timeout after <n> s mail 1", "<disk> full web-shop 1"),
        ("/schedules", "of-mail", "of-web-shop"),
        ("/workers", "w-mail", "w-web-shop"),
        ("/jobs", "All 12 pending jobs of mail", "All 12 pending jobs of web-shop"),
    ):
        page = text_of(visitor.page(path))
        some = text_of(visitor.page(f"{path}{'&' if '?' in path else '?'}queue=SHOP"))
        assert of_mail in page and of_shop in page, (path, page)
        assert re.search(r"damaged : .*queue:damaged:pending is a string", page), (path, page)
        assert of_shop in some and of_mail not in some and "damaged" not in some, (path, some)


def test_pages_across_many_queues_have_pages(visitor: Visitor, make: Make, raw: redis.Redis):
    for n in range(21):
        make(f"q{n:02}").enqueue(1)
    make("damaged")
    raw.sadd("schedq:queues", "damaged")
    raw.set("queue:damaged:failed", "x")

    overview = text_of(visitor.page("/"))
    first = visitor.page("/jobs?queue=q")
    ahead = re.search(r'href="(\?offset=20[^"]*)">Next', first)
    assert ahead
    second = text_of(visitor.page(f"/jobs{unescape(ahead[1])}"))

    assert "21 pending 0 delayed" in overview and "The counts are of 21 queues, other figures of the 20" in overview
    assert "Queues 1 to 20 of 21" in text_of(first)
    assert "Queues 21 to 21 of 21 Previous" in second
    assert "q20" in second and "q19" not in second


# -- searching


def test_a_job_id_leads_to_the_job_in_whatever_queue_it_is(visitor: Visitor, make: Make):
    make("mail").enqueue(1)
    job_id = make("shop").enqueue(1)
    for name in ("a", "b"):
        make(name).enqueue(1, job_id="twice")

    found = visitor.get("/search", params={"q": job_id})

    assert (found.status_code, found.headers["location"]) == (303, f"/queues/shop/jobs/{job_id}")
    assert "2 queues have a job twice : a b" in text_of(visitor.page("/search?q=twice"))
    assert visitor.get("/search?q=twice&queue=b").headers["location"] == "/queues/b/jobs/twice"


def test_texts_and_headers_are_found_in_all_queues_and_states(visitor: Visitor, make: Make):
    mail, shop = make("mail"), make("shop")
    failed = fail(mail, "smtp <timeout>", headers={"tenant": 'acme "one"', "x": "tenant"})
    waiting = shop.enqueue({"task": "pay", "for": "ada@example.org"}, delay=60, headers={"tenant": "other"})

    for query, expected in (
        ("q=ada@example.org", {failed, waiting}),
        ("q=smtp <timeout>", {failed}),
        ("q=SMTP", set()),
        ("q=ada&queue=SHO", {waiting}),
        ('q=acme "one&kind=header', {failed}),
        ('q=tenant=acme "one"&kind=header', {failed}),
        ("q=x=acme&kind=header", set()),
        ("q=tenant&kind=header", {failed}),
        ("q=other&kind=header", {waiting}),
        ("q=x=&kind=header", set()),
        ("q=", set()),
    ):
        page = visitor.page(f"/search?{query}")
        assert set(re.findall(r'<td class="first"><a class="id"[^>]*>(\w+)<', page)) == expected, query
        assert ("Looked at" in page) is (query != "q="), query
    assert "Looked at 2 jobs" in text_of(visitor.page("/search?q=SMTP"))
    assert waiting in visitor.page("/queues/shop/jobs?state=delayed&header=tenant=other")
    assert waiting not in visitor.page("/queues/shop/jobs?state=delayed&header=tenant=acme")


def test_a_search_is_bounded_says_how_far_it_looked_and_continues(
    visitor: Visitor, make: Make, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(search, "_MOST_LOOKED", 100)
    for name, count in (("b-large", 260), ("c-larger", 300)):
        make(name).enqueue_many([{"n": n} for n in range(count)])
    of_large = make("b-large").enqueue({"wanted": 1})
    of_small = [make(name).enqueue({"wanted": 1}) for name in ("a", "z-last")]

    page = visitor.page("/search?q=wanted&kind=text")
    pages = [page]
    while ahead := re.search(r'href="([^"]*)">Continue', page):
        page = visitor.page(unescape(ahead[1]))
        pages.append(page)
        make(f"new-{len(pages)}").enqueue(1)

    found = [re.findall(r'<td class="first"><a class="id"[^>]*>(\w+)<', page) for page in pages]
    assert found == [of_small, [], [of_large], [], [], []], "small queues are searched first, and each job once"
    assert "Looked at 100 jobs" in text_of(pages[0]) and "Looked at 63 jobs" in text_of(pages[-1])
    assert "2 queues not searched to the end; next: pending jobs of b-large" in text_of(pages[0])
    assert "1 queue not searched to the end; next: pending jobs of c-larger" in text_of(pages[-2])
    assert "That was the end" in pages[-1]
    assert visitor.get("/search?q=wanted&at=a&cursor=x").status_code == 400
