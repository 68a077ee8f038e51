"""Type words into the search box of the built site, in Chromium: `python -m scripts.docs.searches FOLDER`.

Each word has to find the page that a reader looks for first. The exit code is 0 if all do, and if there is no Chromium,
which is said.
"""

from __future__ import annotations

import http.server
import re
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from playwright.sync_api import Locator, Page, sync_playwright
from playwright.sync_api import TimeoutError as NotInTime

FIRST: Final = {
    "hook": "middleware",  # on_success and the like
    "middleware": "middleware",
    "progress": "progress",
    "dead letter": "retries",  # where jobs go when no attempts are left
    "unique": "unique-jobs",
    "debounce": "unique-jobs",
    "throttle": "unique-jobs",  # one job in each window
    "deduplication": "unique-jobs",
    "rate limit": "gates",
    "concurrency limit": "gates",
    "fair": "gates",
    "migrate": "from-celery",  # the library that most people come from; its page leads to the others
    "Docker": "compose",
    "Sentry": "recipes",
    "Kubernetes": "kubernetes",
    "systemd": "systemd",
    "eager": "testing",
    "pytest": "testing",
    "Django": "django",
    "FastAPI": "fastapi",
    "Celery": "from-celery",
    "time zone": "schedules",
    "priority": "workers",  # several queues in strict order
    "chain": "batches",
    "workflow": "workflows",
    "graceful shutdown": "deploying",
    "eviction": "redis-in-production",
    "backoff": "retries",
    "retry": "retries",
    "prometheus": "monitoring",
    "benchmark": "speed",
    "prefork": "processes",  # child processes for plain tasks
    "exactly once": "idempotency",  # why there is no such thing, and what to do
}
"""What people type, and the page that has to come first."""
READY_MS: Final = 60_000
AT_MOST_MS: Final = 10_000
"""After which a word counts as one that finds nothing."""
NOTHING: Final = "qqqqqq"
CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def main(folder: str) -> int:
    """Search for everything, print what finds another page first, and return the exit code."""
    if CHROMIUM is None:
        print("searches: left out, there is no Chromium here")
        return 0
    found = search(Path(folder), FIRST)
    wrong = [word for word, pages in found.items() if FIRST[word] not in pages[:1]]
    for word in wrong:
        print(f"searches: {word!r} finds {', '.join(found[word][:4]) or 'nothing'}, not {FIRST[word]}", file=sys.stderr)
    print(f"searches: {len(found) - len(wrong)} of {len(found)} find the right page first")
    return 1 if wrong else 0


def search(folder: Path, words: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of the pages that each of the words finds, the first one first."""
    with served(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        try:
            page = browser.new_page()
            page.set_default_timeout(READY_MS)
            page.goto(address)
            return {word: pages_found(page, word, address) for word in words}
        finally:
            browser.close()


def pages_found(page: Page, word: str, address: str) -> list[str]:
    """Type a word; the pages that the site offers."""
    box, found = page.locator("input.md-search__input"), page.locator("a.md-search-result__link")
    # With a word that finds nothing in between, all that is shown afterwards belongs to this word.
    search_for(box, NOTHING)
    page.locator(".md-search-result__meta", has_text="No matching documents").wait_for(state="attached")
    search_for(box, word)
    try:
        found.first.wait_for(state="attached", timeout=AT_MOST_MS)
    except NotInTime:
        return []
    links: list[str] = found.evaluate_all("links => links.map(link => link.href)")
    names = (re.split(r"[?#]", link.removeprefix(address))[0].strip("/") or "index" for link in links)
    return list(dict.fromkeys(names))


def search_for(box: Locator, word: str) -> None:
    """Type a word; the site looks at the box when a key is released."""
    box.fill(word)
    box.press("End")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder at an address of this machine."""
    handler = partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing."""


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
