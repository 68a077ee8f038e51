"""The dashboard in a real browser: Chromium, without a screen. `scripts/test` installs it where it can."""

from __future__ import annotations

import http.server
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from schedq import Progress, Queue
from schedq.dashboard import create_app
from schedq.model import outcome
from tests.dashboard.appearance import BROKEN, OVERLAPPING, PALE, inaccessible
from tests.dashboard.conftest import TOKEN, Running, Served
from tests.dashboard.crowds import BATCH, FLOW, RUN, crowded, fail_all
from tests.dashboard.hostility import PAGES, fill
from tests.inspect.scenes import report
from tests.servers import Server

PICTURES = Path(__file__).parent / "pictures"
PATIENCE_MS = 60_000
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
EVIL = "queues.evil.example"
STAYS = "window.stays = true"
Open = Callable[..., Page]

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: apt-get install chromium; scripts/test does that where it can"
)
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests; names that it is asked for lead to this machine."""
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    arguments.append(f"--host-resolver-rules=MAP {EVIL} 127.0.0.1")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments, timeout=PATIENCE_MS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser, served: Served) -> Iterator[Open]:
    """Opens a path of the dashboard in a window of its own; options are those of a browser's context."""
    contexts = []

    def open_page(path: str, *, at: str = "", **options: Any) -> Page:
        context = browser.new_context(base_url=at or served.url, **options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def mail(queue: Queue) -> Queue:
    """The queue, with something in it, so that it is there."""
    queue.enqueue({"kind": "first"})
    return queue


def live(page: Page) -> None:
    """Wait until the page is live."""
    expect(page.locator("#pulse")).to_have_class("pulse live")


def depth(page: Page, place: str) -> Any:
    """How many jobs the page says to be in a place."""
    return page.locator(f".depths a.{place} b")


def confirmed(page: Page, label: str) -> None:
    """Say yes to the page that asks."""
    expect(page.locator("form.confirm")).to_be_visible()
    page.locator("form.confirm").get_by_role("button", name=label, exact=True).click()
    expect(page.locator(".notice")).to_be_visible()


# -- seeing


def test_a_job_that_is_enqueued_is_seen_to_run_without_a_reload(open_page: Open, mail: Any):
    page = open_page("/queues/mail/jobs?state=completed")
    live(page)
    page.evaluate(STAYS)
    expect(depth(page, "pending")).to_have_text("1")

    job_id = mail.enqueue({"kind": "second"})
    expect(depth(page, "pending")).to_have_text("2")
    for _ in range(2):
        mail.complete(mail.claim(), {"sent": True})

    expect(page.locator("#live_jobs")).to_contain_text(job_id)
    expect(depth(page, "completed")).to_have_text("2")
    assert page.evaluate("window.stays") is True


@pytest.mark.parametrize("path", ["/queues/mail/jobs?state=processing", "/queues/mail/jobs/{}", "/queues/mail"])
def test_a_bar_is_seen_to_grow_without_a_reload(path: str, open_page: Open, mail: Any):
    job = mail.claim()
    mail.renew(job, progress=Progress(1, 4, "first"))
    page = open_page(path.format(job.id))
    live(page)
    page.evaluate(STAYS)
    expect(page.locator("progress")).to_have_attribute("value", "0.25")

    mail.renew(job, progress=Progress(3, 4, "then"))

    expect(page.locator("progress")).to_have_attribute("value", "0.75")
    assert page.evaluate("window.stays") is True


def test_ticks_and_focus_stay_while_a_page_lives(open_page: Open, mail: Any):
    first = mail.enqueue({"kind": "ticked"})
    page = open_page("/queues/mail/jobs?state=pending")
    live(page)
    box = page.locator(f'input[value="{first}"]')
    box.check()
    box.focus()

    mail.complete(mail.claim())  # the one above it goes
    new = mail.enqueue({"kind": "new"})

    expect(page.locator("#live_jobs")).to_contain_text(new)
    expect(page.locator("#live_jobs tbody tr")).to_have_count(2)
    expect(box).to_be_focused()
    expect(page.get_by_role("button", name="Cancel selected (1)")).to_be_enabled()
    assert box.is_checked()


def test_details_stay_as_the_reader_left_them(open_page: Open, mail: Any):
    job_id = mail.enqueue({"kind": "later"}, delay=1000)
    page = open_page(f"/queues/mail/jobs/{job_id}")
    live(page)
    details, why = page.locator("details"), page.locator(".why")
    for is_open in (True, False):
        page.get_by_text("All stored fields").click()
        expect(details).to_have_js_property("open", is_open)
        before = why.inner_text()
        expect(why).not_to_have_text(before)  # a live update: the time that is left

        assert details.evaluate("element => element.open") == is_open


def test_a_page_shows_that_it_is_outdated_and_recovers(browser: Browser, open_page: Open):
    with Server() as server, Queue("mail", redis=server.own_url) as queue:
        queue.enqueue(1)
        running = Running(create_app(server.own_url))
        try:
            page = open_page("/queues/mail/jobs", at=running.served.url)
            live(page)
            page.evaluate(STAYS)

            server.kill()
            expect(page.locator("#trouble")).to_contain_text("Not up to date")

            server.start()
            queue.enqueue_many([1, 2, 3])
            live(page)
            expect(depth(page, "pending")).to_have_text("3")
            expect(page.locator("#trouble")).to_be_hidden()
            assert page.evaluate("window.stays") is True
            page.context.close()
        finally:
            running.stop()


# -- acting


def test_a_failed_job_is_requeued_by_click(open_page: Open, mail: Any):
    fail_all(mail, 0)
    mail.purge()
    fail_all(mail, 1)
    page = open_page("/queues/mail/jobs?state=failed")
    page.locator("#live_jobs .first a").click()
    expect(page.locator(".why")).to_contain_text("failed")

    page.get_by_role("button", name="Requeue…").click()
    confirmed(page, "Requeue")

    expect(page.locator(".notice")).to_have_text("1 job requeued.")
    expect(page.locator("h1 .state")).to_have_text("pending")
    assert mail.stats()["pending_depth"] == 1


def test_five_hundred_jobs_are_requeued_at_once(open_page: Open, mail: Any):
    mail.purge()
    fail_all(mail, 500)
    page = open_page("/queues/mail/jobs?state=failed&limit=500")
    page.get_by_label("Select all jobs shown").check()

    page.get_by_role("button", name="Requeue selected (500)").click()
    expect(page.locator("form.confirm h1")).to_have_text("Requeue 500 jobs of queue mail?")
    confirmed(page, "Requeue")

    expect(page.locator(".notice")).to_have_text("500 jobs requeued.")
    expect(depth(page, "failed")).to_have_text("0")
    assert mail.stats()["pending_depth"] == 500


def test_a_group_of_errors_is_requeued_in_three_clicks(open_page: Open, mail: Any):
    mail.purge()
    fail_all(mail, 20)
    page = open_page("/queues/mail/failed")
    expect(page.locator("#live_groups tbody tr")).to_have_count(1)

    page.get_by_role("button", name="Requeue…").click()
    confirmed(page, "Requeue")

    expect(page.locator(".notice")).to_have_text("20 jobs requeued.")
    assert (mail.stats().pending_depth, mail.stats().failed_depth) == (20, 0)


def test_a_delayed_job_is_run_now(open_page: Open, mail: Any):
    job_id = mail.enqueue({"kind": "later"}, delay=3600)
    page = open_page("/queues/mail/delayed")
    expect(page.locator("svg.wide rect[height]").first).to_be_attached()

    page.get_by_role("button", name="Run now…").click()
    confirmed(page, "Run now")

    expect(page.locator("#live_jobs")).to_contain_text("Nothing is delayed")
    assert mail.get_job(job_id).status == "pending"


def test_an_operator_who_cancels_changes_nothing(open_page: Open, mail: Any):
    page = open_page("/queues/mail")
    page.get_by_role("button", name="Purge…").click()

    page.get_by_role("link", name="Go back").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("mail")
    assert mail.stats()["pending_depth"] == 1


def test_a_dialog_asks_and_closes_without_leaving_the_page(open_page: Open, mail: Any):
    page = open_page("/queues/mail")
    live(page)
    page.evaluate(STAYS)
    dialog, purge = page.locator("dialog"), page.get_by_role("button", name="Purge…")

    for key in ("Escape", "Enter"):
        purge.click()
        expect(dialog.locator("h1")).to_have_text("Purge queue mail: 1 job?")
        expect(dialog.get_by_role("link", name="Go back")).to_be_focused()  # what can't be undone takes another key
        page.keyboard.press(key)
        expect(dialog).to_be_hidden()
        expect(purge).to_be_focused()

    assert page.evaluate("window.stays") is True
    assert mail.stats()["pending_depth"] == 1


# -- charts and times


def test_charts_tell_their_values_to_mouse_and_keyboard_and_times_are_local(open_page: Open, mail: Any):
    report(mail, "send", completed=9, run_ms=[100] * 9, late_ms=[0] * 9)
    page = open_page("/", timezone_id="Asia/Kolkata")
    page.route("**/tasks/send", lambda it: it.abort() if it.request.resource_type == "eventsource" else it.continue_())
    page.goto("/queues/mail/tasks/send")
    value, chart = page.locator("#value"), page.locator("svg[tabindex]").first
    zones = chart.locator(".zone")
    busy, last = zones.filter(has_text="9 completed"), zones.last  # another one if the five minutes have just ended

    busy.hover()
    expect(value).to_contain_text(re.compile(r"^\d\d-\d\d \d\d:\d\d, 5 min: 9 completed, median "))
    local = value.inner_text()
    page.mouse.move(0, 0)
    expect(value).to_be_hidden()
    chart.focus()
    expect(value).to_have_text(last.text_content() or "")
    page.keyboard.press("ArrowLeft")
    expect(value).to_have_text(zones.nth(-2).text_content() or "")
    page.keyboard.press("End")
    expect(value).to_have_text(last.text_content() or "")
    page.keyboard.press("Escape")
    expect(value).to_be_hidden()

    shown, at = re.search(r"\d\d:(\d\d)", local), busy.get_attribute("data-at")
    assert shown and at
    hour, minute = divmod((int(at[11:13]) * 60 + int(at[14:16]) + 330) % 1440, 60)  # five and a half hours ahead
    assert shown[0] == f"{hour:02}:{minute:02}"
    page.goto(f"/queues/mail/jobs/{mail.list_pending()[0].id}")
    enqueued = page.locator("dd time").first
    at = enqueued.get_attribute("datetime")
    assert at
    expect(enqueued).to_have_attribute("title", f"{at[:10]} {at[11:23]} UTC")
    expect(enqueued).not_to_have_text(f"{at[:10]} {at[11:23]}")
    expect(page.locator("footer")).to_contain_text("times are local, UTC on hover")


# -- keeping others out


def test_hostile_texts_run_no_script(open_page: Open, raw: Any, mail: Any):
    fill(raw)
    page = open_page("/")
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: complaints.append(dialog.message))

    for path in PAGES:
        page.goto(path)
        if page.locator("body[data-live]").count():
            live(page)
        assert page.evaluate("window.hit") is None, path

    # A job whose id differs from its key has no page: a 404, which the browser logs.
    assert [text for text in complaints if "404" not in text] == []


def test_a_page_of_another_site_can_not_act(open_page: Open, served: Served, mail: Any):
    text = f"""<form method=post action="{served.url}/queues/mail/act">
        <input name=do value=pause><input name=csrf value={"0" * 64}></form>
        <button onclick="document.forms[0].submit()">"""
    with other_site(text) as address:
        page = open_page("/queues/mail")
        page.goto(address)
        with page.expect_response(lambda response: response.url.endswith("/act")) as caught:
            page.get_by_role("button").click()

    assert caught.value.status == 403
    assert mail.stats()["paused_since_ms"] is None


def test_another_name_for_this_machine_is_refused(open_page: Open, served: Served, mail: Any):
    page = open_page("/")

    answer = page.goto(f"{served.url.replace('127.0.0.1', EVIL)}/queues/mail")

    assert answer is not None
    assert answer.status == 400
    assert "first" not in page.content()


def test_the_token_is_required_and_kept_out_of_addresses(open_page: Open, serve: Callable[..., Served], mail: Any):
    page = open_page("/queues/mail/jobs", at=serve(token=TOKEN).url)
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator(".problem")).to_have_text("The token is wrong.")

    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")

    expect(depth(page, "pending")).to_have_text("1")
    assert page.url.endswith("/queues/mail/jobs")
    live(page)
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


# -- for all users


def test_without_javascript_everything_is_read_and_done(open_page: Open, mail: Any):
    mail.purge()
    fail_all(mail, 3)
    page = open_page("/", java_script_enabled=False)
    page.get_by_role("link", name="mail").first.click()
    expect(page.locator("figure.chart")).to_have_count(4)
    page.get_by_role("link", name="Jobs").click()
    depth(page, "failed").click()
    page.locator('input[name="ids"]').nth(1).check()

    page.get_by_role("button", name="Requeue selected").click()
    confirmed(page, "Requeue")

    expect(page.locator(".notice")).to_have_text("1 job requeued.")
    assert page.locator("#live_jobs tbody tr").count() == mail.stats().failed_depth == 2


def test_the_keyboard_is_enough(open_page: Open, mail: Any):
    mail.purge()
    fail_all(mail, 1)
    page = open_page("/queues/mail")
    live(page)
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    expect(page.locator(".skip")).to_be_in_viewport()

    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs")
    page.keyboard.press("f")
    expect(page.get_by_label("Task")).to_be_focused()
    page.locator(".depths a.failed").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?state=failed")
    page.get_by_label("Select all jobs shown").focus()
    page.keyboard.press("Space")
    button = page.get_by_role("button", name="Requeue selected (1)")
    page.keyboard.press("Tab")
    expect(button).to_be_focused()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("form.confirm button")).to_be_focused()
    page.keyboard.press("Enter")

    expect(page.locator(".notice")).to_have_text("1 job requeued.")


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1280), ("dark", 1920), ("light", 768), ("light", 360), ("dark", 360)]
)
def test_pages_fit_the_screen_and_can_be_read(scheme: Any, width: int, open_page: Open, mail: Any):
    """Pictures of them are left in a folder that git ignores, to be looked at."""
    job_id = crowded(mail)
    PICTURES.mkdir(exist_ok=True)
    page = open_page("/", viewport={"width": width, "height": 800}, color_scheme=scheme)
    lists = ("failed", "delayed", "schedules", "workers", "log", "gates", "batches", "workflows", "tasks", "new")
    paths = ("jobs?state=failed", f"jobs/{job_id}", f"batches/{BATCH}", *lists)
    names = {"overview": "/", "queue": "/queues/mail"} | {
        path.partition("?")[0].partition("/")[0] + ("-one" if "/" in path else ""): f"/queues/mail/{path}"
        for path in paths
    }
    names["running"] = "/queues/mail/jobs?state=processing"
    names["run"], names["flow"] = f"/queues/mail/jobs/{RUN}", f"/queues/mail/jobs/{FLOW}"
    names["schedule"] = "/queues/mail/schedules/nightly-report-of-everything"
    names["task"], names["gate"] = "/queues/mail/tasks/send_email", "/queues/mail/gates/payments-of-a-bank-far-away"
    barriers = []
    for name, path in names.items():
        page.goto(path)
        if name != "new":
            live(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.evaluate(PALE) == [], path
        barriers += [f"{path}: {each}" for each in inaccessible(page)]
        page.screenshot(path=PICTURES / f"{name}-{scheme}-{width}.png")
    assert barriers == []


def test_on_a_telephone_no_texts_overlap_and_no_word_is_broken(open_page: Open, mail: Any):
    crowded(mail)
    mail.enqueue({"task": "report"}, delay=1000)
    mail.enqueue_many([{"task": "reports.quarterly." + "0" * 60}, {"no": "task call"}])
    while (job := mail.claim(timeout_ms=0)) is not None:
        mail.settle(outcome.unknown(job, "this worker lacks it", mail.settings))
    page = open_page("/", viewport={"width": 390, "height": 800})
    of_queue = (
        "",
        "schedules",
        "delayed",
        "workers",
        "gates",
        "batches",
        f"batches/{BATCH}",
        "workflows",
        f"jobs/{RUN}",
        f"jobs/{FLOW}",
        "tasks",
        "tasks/send_email",
    )
    paths = ("/", *(f"/queues/mail/{name}" for name in (*of_queue, "gates/payments-of-a-bank-far-away")))
    for path in paths:
        page.goto(path.removesuffix("/") or "/")
        live(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert page.evaluate(BROKEN) == [], path
        assert page.evaluate(OVERLAPPING) == [], path


class other_site:  # noqa: N801 - reads as what it makes
    """A site on another port that serves one text."""

    def __init__(self, text: str) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
