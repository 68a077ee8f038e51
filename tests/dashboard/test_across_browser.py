"""The overview, the pages across queues and the search in a real browser."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from schedq import Queue
from tests.cli.scenes import beat
from tests.dashboard.appearance import BROKEN, OVERLAPPING, PALE, inaccessible
from tests.dashboard.crowds import crowded, fail_all
from tests.dashboard.test_browser import (  # noqa: F401 - fixtures
    CHROMIUM,
    PICTURES,
    Open,
    browser,
    live,
    mail,
    open_page,
)
from tests.inspect.scenes import report
from tests.servers import Server

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; see test_browser.py")
PATHS = ("/", "/jobs?state=failed", "/jobs?state=processing", "/failed", "/schedules", "/workers", "/search?q=smtp")


def test_what_is_open_focused_selected_and_scrolled_stays_while_pages_live(open_page: Open, mail: Any):  # noqa: F811
    fail_all(mail, 3)
    page = open_page("/", viewport={"width": 900, "height": 500})
    live(page)
    details = page.locator("details.finding").first
    expect(details).to_be_visible()  # the examination has ended
    details.locator("summary").click()
    details.locator("summary").focus()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('details.finding p'))")
    page.evaluate("scrollTo(0, 300)")
    selected = page.evaluate("getSelection().toString()")

    mail.enqueue_many([1] * 5)
    expect(page.locator("#live_state .pending b")).to_have_text("5")

    expect(details).to_have_js_property("open", True)
    expect(details.locator("summary")).to_be_focused()
    assert (page.evaluate("getSelection().toString()"), page.evaluate("scrollY")) == (selected, 300)
    assert selected

    page.goto("/jobs?state=pending&queue=ma")
    live(page)
    field = page.get_by_label("Queue", exact=True)
    field.fill("mai")
    job_id = mail.enqueue(1)
    expect(page.locator("#live_rows")).to_contain_text(job_id)
    expect(field).to_be_focused()
    expect(field).to_have_value("mai")
    assert page.url.endswith("/jobs?state=pending&queue=ma")


@pytest.mark.parametrize("has_script", [True, False])
def test_a_search_from_anywhere_finds_a_job_with_the_keyboard(has_script: bool, open_page: Open, mail: Any):  # noqa: F811
    job_id = mail.enqueue({"wanted": 1})
    page = open_page("/queues/mail/workers", java_script_enabled=has_script)
    field = page.get_by_label("Search all queues")
    if has_script:
        live(page)
        page.keyboard.press("/")
        expect(field).to_be_focused()
    field.fill(job_id)
    field.press("Enter")
    page.wait_for_url(f"**/jobs/{job_id}")

    page.get_by_label("Search all queues").fill("wanted")
    page.get_by_label("Search all queues").press("Enter")

    expect(page.locator("#live_found tbody a").first).to_have_text(job_id)
    assert page.locator("#live_found tbody tr").count() == 1


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 768), ("light", 1280), ("dark", 1920)])
def test_pages_across_queues_fit_and_are_accessible(scheme: Any, width: int, open_page: Open, mail: Any, store: Server):  # noqa: F811
    crowded(mail)
    report(mail, "send_email", completed=70, failed=2)
    beat(mail, "worker-on-a-host-far-away-1234", concurrency=8, running=1)
    with Queue("images-of-all-products", redis=store.own_url) as other:
        other.enqueue_many([{"task": "resize"}] * 3, headers={"tenant": "smtp"})
    PICTURES.mkdir(exist_ok=True)
    page = open_page("/", viewport={"width": width, "height": 800}, color_scheme=scheme)
    for path in PATHS:
        page.goto(path)
        if "search" not in path:
            live(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.evaluate(PALE) == [], path
        assert page.evaluate(OVERLAPPING) == [], path
        assert page.evaluate(BROKEN) == [], path
        assert inaccessible(page) == [], path
        page.screenshot(
            path=PICTURES / f"across{path.partition('?')[0].replace('/', '-')}-{scheme}-{width}.png", full_page=True
        )
