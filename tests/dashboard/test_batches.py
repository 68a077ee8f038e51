"""The pages of batches and chains."""

from __future__ import annotations

import re

from schedq import Discard, Queue
from tests.dashboard.conftest import Visitor
from tests.dashboard.test_pages import text_of

PAGE = "/queues/mail/batches"


def test_batches_their_failures_and_their_timeline_are_shown(visitor: Visitor, queue: Queue) -> None:
    @queue.task
    def square(number: int) -> int:
        return number * number

    assert PAGE not in visitor.page("/queues/mail")
    filled = queue.batch("filled", square)
    filled.__enter__().add([1, 2])
    with queue.batch("squares", square) as batch:
        batch.add([2, -1, 3, 4])
    for error in ("", "it is <negative>"):
        job = next(job for job in iter(lambda: queue.claim(0), None) if job.id.startswith("squares"))
        queue.fail(job, Discard(error)) if error else queue.complete(job, 4)

    assert f'href="{PAGE}">Batches' in visitor.page("/queues/mail")
    page = visitor.page(PAGE)
    assert re.search(r"squares square running 4 1 1 2 0 50 % [\d.]+ m?s ago –", text_of(page)), text_of(page)
    assert "filled square running, being filled 2 0 0 2 0 0 %" in text_of(page)
    assert '<progress max="1" value="0.5"' in page

    page = visitor.page(f"{PAGE}/squares")
    assert f'href="/queues/mail/jobs/{job.id}"' in page
    assert f"{job.id} 1 (-1) it is <negative>" in text_of(page), text_of(page)
    assert re.search(r"Timeline began .* child 1 failed .* it is <negative>", text_of(page)), text_of(page)
    assert f'href="{PAGE}/squares">squares</a>' in visitor.page(f"/queues/mail/jobs/{job.id}")
    assert visitor.get(f"{PAGE}/none").status_code == 404
    batch.cancel()
    queue.promote_due()
    assert re.search(r"squares square cancell(ing|ed) 4", text_of(visitor.page(PAGE)))


def test_many_batches_have_pages(visitor: Visitor, queue: Queue) -> None:
    for n in range(51):
        with queue.batch(f"b{n:02}", queue.task(print)) as batch:
            batch.add([n])

    first, second = visitor.page(PAGE), visitor.page(f"{PAGE}?offset=50")

    assert len(re.findall(r'<td class="first">', first)) == 50 and "?offset=50" in first
    assert len(re.findall(r'<td class="first">', second)) == 1 and "Next page" not in second
