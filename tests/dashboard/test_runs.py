"""The page of a workflow's job: its chart, what it waits for, and messages to it; the page of all runs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import redis

from schedq import Discard, Fixed, Job, Queue, StepFailed, WorkflowContext
from schedq.dashboard import runs
from schedq.dashboard.runs import MOST_ROWS, RunChart, chart
from schedq.inspect.run_tree import run_of
from schedq.model.records import JobRecord
from schedq.testing import run_due
from tests.dashboard.conftest import Visitor
from tests.dashboard.test_pages import text_of


@pytest.fixture
def waiting(queue: Queue) -> Job[Any]:
    """A run that has taken two steps, one of which failed, and waits for a verdict."""

    def charge(amount: int) -> dict[str, int]:
        return {"receipt": amount}

    def ship() -> None:
        raise ValueError("no <parcel>")

    @queue.workflow(max_attempts=1)
    async def order(ctx: WorkflowContext) -> Any:
        await ctx.step(charge, 5)
        try:
            await ctx.step(ship)
        except StepFailed:
            return await ctx.receive("verdict")

    job = order.enqueue()
    run_due(queue)
    return job


def page_of(job: Job[Any]) -> str:
    return f"/queues/mail/jobs/{job.id}"


def test_steps_and_waits_are_shown(visitor: Visitor, waiting: Job[Any]) -> None:
    text = text_of(visitor.page(page_of(waiting)))

    assert re.search(r'It has waited [^.]* for a message on topic "verdict"', text), text
    assert "2 operations done" in text
    rows = r'charge ok [\d:]+ \S+ m?s \{"receipt": 5\} ship error [\d:]+ .*no <parcel>.* receive verdict waits '
    assert re.search(rows, text), text
    assert "9999-" not in text
    timeline = text.partition("Timeline")[2].partition("Facts")[0]
    assert re.search(
        r"run began .* step charge: ok after .* step ship: error after .* receive verdict begins", timeline
    )
    assert "Due – never" in text


def test_a_message_is_sent_from_the_page(visitor: Visitor, waiting: Job[Any], queue: Queue) -> None:
    do = f"send_message job {waiting.id}"
    assert f'value="{do}"' in visitor.page(page_of(waiting))
    question, _ = visitor.ask(do)
    assert f"Send a message to job {waiting.id}?" in text_of(question)
    assert 'name="topic" required value="verdict"' in question

    notice = visitor.do(do, back=page_of(waiting), topic="verdict", value='{"approved": true}')

    assert f"A message on topic verdict was sent to job {waiting.id}." in notice
    assert queue.inspector.log()[-1].fields["who"] == "dashboard"
    run_due(queue)
    assert waiting.result(0) == {"approved": True}
    page = visitor.page(page_of(waiting))
    assert "send_message" not in page
    assert "<h2>3 operations done</h2>" in page


def test_messages_that_nothing_takes_are_counted(visitor: Visitor, waiting: Job[Any]) -> None:
    waiting.send("other", 1)
    waiting.send("other", 2)

    assert "2 messages on topic other that nothing has taken." in text_of(visitor.page(page_of(waiting)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topic": "verdict", "value": "yes"}, "is not JSON: write a text in quotes"),
        ({"topic": "no topic", "value": "1"}, "topic &#39;no topic&#39; must be"),
        ({"value": "1"}, "topic &#39;&#39; must be"),
    ],
)
def test_wrong_messages_are_refused(visitor: Visitor, waiting: Job[Any], fields: dict[str, str], words: str) -> None:
    _, hidden = visitor.ask(f"send_message job {waiting.id}")

    answer = visitor.post("/queues/mail/act", hidden | fields)

    assert answer.status_code == 400
    assert words in answer.text


def test_a_job_that_has_ended_takes_no_message(visitor: Visitor, waiting: Job[Any]) -> None:
    _, hidden = visitor.ask(f"send_message job {waiting.id}")
    waiting.cancel()

    answer = visitor.post("/queues/mail/act", hidden | {"topic": "verdict", "value": "1"})

    assert f"job {waiting.id} takes no message" in answer.text


# -- the chart

DAY_MS = 86_400_000
BEGAN_MS = 1_800_000_000_000


def memo(kind: str, outcome: str, began_ms: int, took_ms: int, number: int, *, attempt: int = 1) -> str:
    began_ms += BEGAN_MS
    return json.dumps(
        [kind, outcome, "no" if outcome == "error" else None, began_ms, began_ms + took_ms, attempt, number]
    )


def month(**more: str) -> JobRecord:
    """A run that has waited for a month after steps of milliseconds."""
    fields = {
        "status": "delayed",
        "run": f"v=1 began={BEGAN_MS} steps=6 undos=1",
        "step:charge": memo("step", "ok", 0, 2, 1, attempt=3),
        "undo:charge": "1 {}",
        "step:1.late/sleep": memo("sleep", "ok", 5, 31 * DAY_MS, 5),
        "step:1.paid/ask": memo("step", "error", 6, 3, 2),
        "step:1.paid.1.1/x": memo("step", "timeout", 7, 3, 3),
        "step:first": memo("first", "ok", 30 * DAY_MS, DAY_MS, 6),
        "waits": json.dumps([["receive", "packed", None, "packed"], ["retry", "ship", BEGAN_MS + 40 * DAY_MS]]),
        "until:packed": f"253402300799999 {BEGAN_MS + 31 * DAY_MS + 5}",
        "tries:ship": f"2 {BEGAN_MS + 40 * DAY_MS} 2 ConnectionError: it is away",
    }
    return JobRecord.from_fields("order-17", fields | more)


def charted(queue: Queue, record: JobRecord, now_ms: int) -> RunChart:
    found = chart(queue._drive(run_of(queue.settings, record, 1, [1])), record, BEGAN_MS + now_ms)
    assert found is not None
    return found


def drawn(queue: Queue, record: JobRecord, now_ms: int) -> list[tuple[Any, ...]]:
    return [
        ("  " * depth + it.name, it.state, round(x), round(width), it.note)
        for it, depth, _, _, x, width in charted(queue, record, now_ms).rows
    ]


def test_rows_are_in_the_order_of_their_beginnings_and_indented_by_branch(queue: Queue) -> None:
    rows = drawn(queue, month(), 62 * DAY_MS)

    assert [(*row[:4], row[4].rpartition("00, ")[2]) for row in rows] == [
        ("charge", "ok", 0, 0, "3 tries, can be undone"),
        ("first", "ok", 0, 50, ""),
        ("late", "", 0, 50, ""),
        ("  sleep", "ok", 0, 50, ""),
        ("paid", "", 0, 0, ""),
        ("  ask", "error", 0, 0, "no"),
        ("  1", "", 0, 0, ""),
        ("    x", "timeout", 0, 0, ""),
        ("packed", "waits", 50, 60, ""),
        ("ship", "waits", 50, 60, "try 2 failed with ConnectionError: it is away"),
    ]


def test_bars_of_milliseconds_in_a_month_have_a_width_and_open_ones_go_beyond_the_end(queue: Queue) -> None:
    found = charted(queue, month(), 62 * DAY_MS)

    assert min(row.width for row in found.rows) > 0
    assert {row.node.name for row in found.rows if row.x + row.width > 100.1} == {"packed", "ship"}
    assert (found.ticks, found.ended_ms, found.done) == (["0 ms", "15 d 12 h", "31 d", "46 d 12 h", "62 d"], 0, 5)


def test_what_a_run_waited_for_ended_with_it(queue: Queue) -> None:
    record = month(status="cancelled", cancelled_at_ms=f"{BEGAN_MS + 40 * DAY_MS}")

    rows = {name: (outcome, x + width) for name, outcome, x, width, _ in drawn(queue, record, 62 * DAY_MS)}

    assert rows["packed"] == rows["ship"] == ("cancelled", 100)


def test_a_chart_has_at_most_500_rows(queue: Queue) -> None:
    record = month(**{f"step:s#{n}": memo("step", "ok", n, 1, n) for n in range(600)})

    found = charted(queue, record, DAY_MS)

    assert (len(found.rows), found.left_out) == (MOST_ROWS, 110)


@pytest.fixture
def import_folder(queue: Queue) -> Any:
    """A workflow with a map, a call and an undo."""

    @queue.task
    def load(number: int) -> int:
        if number == 3:
            raise Discard("no file")
        return number

    @queue.task(max_attempts=2, backoff=Fixed(600))
    def publish() -> None:
        raise ConnectionError

    def reserve() -> None: ...

    @queue.workflow(name="import_folder")
    async def import_folder(ctx: WorkflowContext, number: int) -> None:
        await ctx.options(undo=load.with_args(1)).step(reserve)
        await ctx.map(load, [1, 2, 3], tolerate=1)
        if number == 2:
            raise Discard("no number")
        await ctx.call(publish)

    return import_folder


def test_jobs_of_a_run_are_linked(visitor: Visitor, queue: Queue, import_folder: Any) -> None:
    job = import_folder.enqueue(1)
    run_due(queue)

    page = visitor.page(page_of(job))

    assert "2 of 3 completed, 1 failed; batch run-" in text_of(page)
    links = re.findall(r'href="(/queues/mail/(?:jobs|batches)/run-[^"]+)"', page.partition('id="live_run"')[2])
    assert [link.split("/")[3] for link in links] == ["batches", "jobs"]
    for link in links:
        visitor.page(link)


def test_the_page_of_workflows_shows_what_they_wait_for(
    visitor: Visitor, queue: Queue, waiting: Job[Any], import_folder: Any
) -> None:
    failed = import_folder.options(job_id="fails").enqueue(2)
    run_due(queue)
    queue.enqueue({"task": "other"})

    def rows(query: str = "") -> dict[str, str]:
        page = visitor.page(f"/queues/mail/workflows{query}").partition("<tbody>")[2]
        return {row.split('"')[1]: text_of(row) for row in page.split("<tr data-key=")[1:]}

    assert list(rows()) == [waiting.id, failed.id]
    assert re.search(r"order 2 .* it has waited .* for a message on topic", rows()[waiting.id])
    assert re.search(r"completed|failed import_folder \d ", rows()[failed.id])
    assert list(rows("?state=failed")) == list(rows("?task=import_folder")) == [failed.id]
    assert rows("?state=delayed&task=import_folder") == rows("?task=other") == {}
    assert "No run of workflow other among these jobs." in text_of(visitor.page("/queues/mail/workflows?task=other"))


def test_the_page_says_that_it_looked_at_a_part_only(
    visitor: Visitor, queue: Queue, waiting: Job[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_LOOK", (30, 50))
    queue.enqueue_many([{"task": "other"}] * 50)

    page = visitor.page("/queues/mail/workflows")

    assert "1 run; 6 of 51 jobs looked at. There may be more runs." in text_of(page)
    (more,) = re.findall(r'href="([^"]+)">More pending', page)
    assert "0 runs; 45 of 50 jobs looked at for this page." in text_of(visitor.page(more.replace("&amp;", "&")))


def test_damaged_records_of_runs_are_shown_as_far_as_they_can_be_read(
    visitor: Visitor, queue: Queue, raw: redis.Redis, waiting: Job[Any]
) -> None:
    damage: dict[Any, Any] = {
        "step:bad": "[1]",
        "waits": "[[1], 2, 3]",
        "step:" + "." * 3000 + "/x": memo("step", "ok", 0, 1, 9),
    }
    raw.hset(f"queue:mail:job:{waiting.id}", mapping=damage)

    assert "3 operations done" in visitor.page(page_of(waiting))
    assert waiting.id in visitor.page("/queues/mail/workflows")
