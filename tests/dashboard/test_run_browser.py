"""The chart of a run in a real browser."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.dashboard.crowds import RUN, recorded, suspended
from tests.dashboard.test_browser import CHROMIUM, STAYS, Open, browser, live, open_page  # noqa: F401 - fixtures

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; see test_browser.py")


def test_a_run_is_followed_without_a_reload(open_page: Open, queue: Any):  # noqa: F811
    suspended(queue)
    page = open_page(f"/queues/mail/jobs/{RUN}")
    live(page)
    page.evaluate(STAYS)
    rows = page.locator("#live_run tbody tr")
    expect(rows).to_have_count(8)
    expect(page.locator(".bar.open rect")).to_have_count(4)

    queue.job(RUN).send("verdict", True)
    job = queue.claim()
    job.run = queue.get_job(RUN).fields["run"]
    recorded(queue, job, "1.mail/receive#2", value=True)

    expect(rows.filter(has_text="receive#2")).to_contain_text("ok")
    assert page.evaluate("window.stays") is True


def test_the_shortest_bar_is_two_pixels_wide_and_none_needs_javascript(open_page: Open, queue: Any):  # noqa: F811
    suspended(queue)
    page = open_page(f"/queues/mail/jobs/{RUN}", viewport={"width": 360, "height": 800})
    live(page)
    width = "bars => bars.map((bar) => bar.getBBox().width + parseFloat(getComputedStyle(bar).strokeWidth))"
    assert min(page.locator(".bar rect").evaluate_all(width)) >= 2

    bare = open_page(f"/queues/mail/jobs/{RUN}", java_script_enabled=False)

    expect(bare.locator(".bar rect")).to_have_count(8)
