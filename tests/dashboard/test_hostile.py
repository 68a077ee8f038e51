"""Whatever is in Redis, a page shows it as text: no element, attribute or address comes from it."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest

from schedq import Queue
from tests.dashboard.conftest import Visitor
from tests.dashboard.hostility import HOSTILE, PAGES, fill
from tests.servers import Server

_ELEMENTS = """
html head meta title link script body a header span form input button nav p main footer i b bdi div section h1 h2 ul ol
li table thead tbody tr th td time code pre label select option dl dt dd details summary figure figcaption svg line path
text rect g progress dialog
"""
ELEMENTS = set(_ELEMENTS.split())


class Elements(HTMLParser):
    """Every element of a page, its attributes, and the text between."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def hostile(store: Server) -> str:
    """A Redis in which every field of everything is hostile, as any program may have written it."""
    with Queue("mail", redis=store.own_url) as queue:
        queue.enqueue(1)
    with store.client() as client, client.pipeline(transaction=False) as pipeline:
        fill(pipeline)
        pipeline.execute()
    return "queue:mail:"


@pytest.mark.parametrize("path", PAGES)
def test_hostile_texts_are_texts(path: str, visitor: Visitor, hostile: str):
    answer = visitor.get(path)

    assert answer.status_code in (200, 404), answer.text[:2000]
    page = Elements()
    page.feed(answer.text)
    assert {tag for tag, _ in page.found} <= ELEMENTS
    assert [attributes.get("src") for tag, attributes in page.found if tag == "script"] == ["/static/dashboard.js"]
    for tag, attributes in page.found:
        assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
        for name in ("href", "action", "src"):
            assert attributes.get(name, "/").startswith(("/", "?", "#")), (tag, attributes)
            assert not attributes.get(name, "/").startswith("//"), (tag, attributes)
    assert not any(letter in answer.text for letter in "\u202e\u2066\x00\x1b")
    if path != "/":
        assert "window.hit=1" in page.text or "schedules/s0" in path


@pytest.mark.parametrize("path", PAGES)
def test_hostile_texts_are_escaped_in_streams_too(path: str, visitor: Visitor, hostile: str):
    with visitor.http.stream("GET", path, headers={"accept": "text/event-stream"}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                regions = json.loads(line.removeprefix("data: "))
                break

    for html in regions.values():
        page = Elements()
        page.feed(html)
        assert {tag for tag, _ in page.found} <= ELEMENTS - {"script", "html", "body", "input"} | {"input"}
        assert not any(name.startswith("on") or name == "style" for _, found in page.found for name in found)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_escaped_in_addresses_filters_and_forms_too(text: str, visitor: Visitor, hostile: str):
    csrf = visitor.token("/queues/mail/workers")
    responses = [
        visitor.get("/queues/mail/jobs", params={"task": text, "text": text, "error": text, "state": "failed"}),
        visitor.get("/search", params={"q": text, "kind": "text", "queue": text, "at": text}),
        visitor.get("/jobs", params={"queue": text, "state": text, "offset": text}),
        visitor.get("/queues/mail/jobs", params={"older": text, "cursor": text, "state": text, "limit": text}),
        visitor.http.get(
            f"/queues/{text.encode().hex()}{text}".replace("\x00", "%00")
            .replace("\x1b", "%1b")
            .replace("\r\n", "%0d%0a")
        ),
        visitor.get("/queues/mail/log", params={"kind": text, "who": text, "task": text, "after": text}),
        visitor.get(
            "/queues/mail/new", params=dict.fromkeys(("id", "task", "args", "kwargs", "payload", "run_at"), text)
        ),
        visitor.get("/queues/mail/new", params={"job": "failed0"}),
        visitor.post("/queues/mail/new", {"payload": text, "delay": text, "run_at": text, "csrf": csrf}),
        visitor.post("/queues/mail/confirm", {"do": f"stop_worker worker {text}", "back": text, "csrf": csrf}),
        visitor.post(
            "/queues/mail/confirm", {"do": "requeue matching", "state": "failed", "error": text, "csrf": csrf}
        ),
    ]

    for response in responses:
        assert response.status_code in (200, 400, 404), response.text
        page = Elements()
        page.feed(response.text)
        assert {tag for tag, _ in page.found} <= ELEMENTS | {"textarea", "datalist"}
        assert len([tag for tag, _ in page.found if tag == "script"]) == 1
        assert not any(name.startswith("on") or name == "style" for _, found in page.found for name in found)
