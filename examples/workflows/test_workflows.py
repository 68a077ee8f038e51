"""Months in moments: what the programs do, on virtual time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from schedq import Job, JobFailed
from schedq.testing import QueueTester, override
from workflows import expenses, ladder, nightly, orders, signup
from workflows.agent import Model, TooManyRequestsError, get_model, research
from workflows.album import make_sheet, show
from workflows.etl import load
from workflows.expenses import Expense, approve
from workflows.orders import fulfil
from workflows.queues import DAY
from workflows.signup import welcome

BY_ADA = Expense("Ada", 12_050, ("Grace", "Edsger"))
HOUR = timedelta(hours=1)


def test_an_order_that_is_packed_on_the_second_day_is_shipped(schedq_tester: QueueTester) -> None:
    job = fulfil.enqueue(17, 90)
    schedq_tester.fast_forward(2 * DAY - HOUR)
    assert job.send("packed", "p1")
    schedq_tester.run_due()
    assert orders.shop.events == ["reserved 17", "shipped 17", "mail 17: on its way, track-p1"]

    schedq_tester.fast_forward()
    assert job.result(timeout=0) == "track-p1"
    assert orders.shop.events[3:] == ["mail 17: how was it?"]
    assert list(orders.shop.paid.values()) == [90]


def test_a_parcel_that_is_scanned_before_the_order_is_charged_is_not_lost(schedq_tester: QueueTester) -> None:
    job = fulfil.enqueue(17, 90)
    job.send("packed", "p1", id="scan-1")
    job.send("packed", "p1", id="scan-1")
    schedq_tester.fast_forward()

    assert job.result(timeout=0) == "track-p1"


def test_an_order_that_is_not_packed_is_paid_back_once(schedq_tester: QueueTester) -> None:
    job = fulfil.enqueue(17, 90)
    schedq_tester.fast_forward(3 * DAY)

    with pytest.raises(JobFailed, match="not packed in two days"):
        job.result(timeout=0)
    assert not job.send("packed", "p1")
    assert (orders.shop.stock, list(orders.shop.paid.values())) == (3, [0])


def test_an_order_whose_card_is_refused_gives_its_piece_back(schedq_tester: QueueTester) -> None:
    job = fulfil.enqueue(17, 900)
    schedq_tester.run_due()

    with pytest.raises(JobFailed, match="card refused"):
        job.result(timeout=0)
    assert orders.shop.events == ["reserved 17", "released 17"]
    assert (orders.shop.stock, orders.shop.paid) == (3, {})


def test_an_order_that_is_cancelled_is_paid_back_unless_it_is_on_its_way(schedq_tester: QueueTester) -> None:
    waiting, shipped = fulfil.enqueue(17, 90), fulfil.enqueue(18, 70)
    shipped.send("packed", "p2")
    schedq_tester.run_due()
    for job in (waiting, shipped):
        job.cancel()
    schedq_tester.run_due()

    assert (waiting.status(), shipped.status()) == ("cancelled", "cancelled")
    assert list(orders.shop.paid.values()) == [0, 70]
    assert (orders.shop.stock, orders.shop.reserved) == (2, {18})


def test_an_order_without_stock_fails_and_goes_on_when_there_is_some(schedq_tester: QueueTester) -> None:
    orders.shop.stock = 0
    job = fulfil.enqueue(17, 90)
    schedq_tester.run_due()
    with pytest.raises(JobFailed, match="out of stock"):
        job.result(timeout=0)

    orders.shop.stock = 1
    assert job.requeue()
    job.send("packed", "p1")
    schedq_tester.fast_forward()
    assert job.result(timeout=0) == "track-p1"


def test_an_expense_is_paid_when_the_manager_says_yes(schedq_tester: QueueTester) -> None:
    job = approve.enqueue(BY_ADA)
    schedq_tester.fast_forward(DAY)
    job.send("verdict", value=True)
    schedq_tester.run_due()

    assert job.result(timeout=0) == "paid, approved by Grace"
    assert (expenses.asked, expenses.paid) == (["Grace"], ["Ada"])


def test_the_next_manager_is_asked_after_two_days_and_may_decline(schedq_tester: QueueTester) -> None:
    job = approve.enqueue(BY_ADA)
    schedq_tester.fast_forward(3 * DAY)
    assert expenses.asked == ["Grace", "Edsger"]
    job.send("verdict", value=False)
    schedq_tester.run_due()

    assert job.result(timeout=0) == "declined by Edsger"
    assert expenses.paid == []


def test_an_expense_without_a_reply_fails_after_four_days(schedq_tester: QueueTester) -> None:
    job = approve.enqueue(BY_ADA)
    schedq_tester.fast_forward()

    with pytest.raises(JobFailed, match="none of Grace, Edsger has replied"):
        job.result(timeout=0)
    assert schedq_tester.clock() - started(job.record()) == pytest.approx(4 * 86_400, abs=60)


def started(record: object) -> float:
    """When a job was enqueued, in seconds."""
    return float(getattr(record, "enqueued_at_ms", 0)) / 1000


def test_the_agent_waits_as_long_as_the_provider_says_and_keeps_what_it_has_paid_for(
    schedq_tester: QueueTester,
) -> None:
    model = Model()
    before = schedq_tester.clock()
    with override(get_model, lambda: model):
        job = research.enqueue("Which city is warmer?")
        schedq_tester.fast_forward()

    assert job.result(timeout=0) == "Lima is warmer"
    assert model.calls == 4  # a refusal, a reply, a failure, a reply; no reply was paid for twice
    assert 0.5 <= schedq_tester.clock() - before <= 60


def test_any_number_of_refusals_is_no_failure(schedq_tester: QueueTester) -> None:
    model = Model([TooManyRequestsError(60)] * 20 + [{"done": "42"}])
    with override(get_model, lambda: model):
        job = research.enqueue("What is it?")
        schedq_tester.fast_forward()

    assert job.result(timeout=0) == "42"


def test_an_agent_that_is_never_done_ends(schedq_tester: QueueTester) -> None:
    model = Model([{"tools": [{"tool": "temperature", "city": "Oslo"}]}])
    with override(get_model, lambda: model):
        job = research.enqueue("What is it?")
        schedq_tester.fast_forward()

    with pytest.raises(JobFailed, match="not done in 10 turns"):
        job.result(timeout=0)


def test_four_letters_go_out_in_thirty_days(schedq_tester: QueueTester) -> None:
    before = schedq_tester.clock()
    job = welcome.enqueue("ada")
    schedq_tester.fast_forward()

    assert job.result(timeout=0) == 4
    assert signup.sent == [("ada", letter) for _, letter in signup.LETTERS]
    assert schedq_tester.clock() - before == pytest.approx(30 * 86_400, abs=60)


def test_letters_end_when_the_user_has_had_enough(schedq_tester: QueueTester) -> None:
    job = welcome.enqueue("ada")
    schedq_tester.fast_forward(5 * DAY)
    signup.unsubscribed.add("ada")
    schedq_tester.fast_forward()

    assert job.result(timeout=0) == 2


def test_every_night_has_its_model(schedq_tester: QueueTester) -> None:
    schedq_tester.run_due()  # stores the schedule, as a worker does when it starts
    schedq_tester.fast_forward(timedelta(days=3))

    assert Counter(nightly.done) == {
        "extracted crm": 3, "extracted shop": 3, "published model of 7000 rows": 3, "cleaned up": 3,
    }  # fmt: skip


def test_a_night_without_a_source_pages_a_person_and_cleans_up_once(schedq_tester: QueueTester) -> None:
    nightly.broken.add("shop")
    job = nightly.nightly.enqueue()
    schedq_tester.fast_forward()

    assert job.status() == "failed"
    assert nightly.done == ["extracted crm", "cleaned up", "paged: extract 2: ConnectionError: shop is away"]


def test_a_night_that_failed_goes_on_where_it_failed(schedq_tester: QueueTester) -> None:
    nightly.broken.add("shop")
    job = nightly.nightly.enqueue()
    schedq_tester.fast_forward()
    nightly.broken.clear()
    del nightly.done[:]
    assert job.requeue()
    schedq_tester.run_due()

    assert job.result(timeout=0) == "model of 7000 rows"
    assert Counter(nightly.done) == {"extracted shop": 1, "published model of 7000 rows": 1, "cleaned up": 1}


def test_a_season_of_videos(schedq_tester: QueueTester) -> None:
    job = ladder.season.options(job_id="season-7").enqueue("spring", ["e1", "e2", "e3"])
    again = ladder.season.options(job_id="season-7").enqueue("spring", ["e1", "e2", "e3"])
    schedq_tester.run_due()

    assert not again.created
    assert job.result(timeout=0)[1:] == [f"e{n}: 3 sizes, e{n}.avif" for n in (1, 2, 3)]
    assert (ladder.ran["probe"], ladder.ran["transcode"]) == (3, 9)


def test_a_video_without_a_graphics_processor_has_its_picture_drawn_slowly(schedq_tester: QueueTester) -> None:
    ladder.without_gpu.append("all machines are taken")
    job = ladder.ladder.enqueue("pilot")
    schedq_tester.fast_forward()

    assert job.result(timeout=0) == "pilot: 3 sizes, pilot.jpeg"
    assert ladder.ran["cpu"] == 1


def test_files_are_added_up_without_those_that_can_not_be_read(schedq_tester: QueueTester, tmp_path: Path) -> None:
    for number in range(1_000):
        (tmp_path / f"{number:05}.csv").write_text(f"cents\n{number}\n{number}\n")
    for number in (17, 471):
        (tmp_path / f"{number:05}.csv").write_text("euro\n1\n")
    files = load("sales", tmp_path)
    assert load("sales", tmp_path).total == 1_000  # the producer ran again
    schedq_tester.fast_forward()

    cents = 2 * (sum(range(1_000)) - 17 - 471)
    assert (files.progress().completed, files.progress().failed) == (998, 2)
    assert files.then_job().result(timeout=0) == {"lines": 1_996, "cents": cents}
    assert (tmp_path / "total.txt").read_text() == f"1996 lines, {cents / 100:.2f}\n"


def test_too_many_unreadable_files_make_no_total(schedq_tester: QueueTester, tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.csv").write_text("cents\n1\n" if number else "euro\n1\n")
    files = load("sales", tmp_path)
    schedq_tester.fast_forward()

    assert files.progress().status == "failed"
    assert not (tmp_path / "total.txt").exists()


def test_a_chord_makes_one_page_in_the_order_of_the_photos(schedq_tester: QueueTester) -> None:
    sheet = make_sheet("trip", (f"photo-{number}" for number in range(200)))
    schedq_tester.fast_forward()

    page = sheet.then_job().result(timeout=0)
    assert page == "trip: " + ", ".join(f"small photo-{number}" for number in range(200))


def test_two_broken_photos_in_a_hundred_are_left_out_and_three_are_too_many(schedq_tester: QueueTester) -> None:
    photos = [f"photo-{number}" for number in range(98)]
    sheet = make_sheet("trip", ["broken-1", *photos, "broken-2"])
    other = make_sheet("home", ["broken-1", *photos, "broken-2", "broken-3"])
    schedq_tester.fast_forward()

    assert sheet.progress().status == "completed"
    assert other.progress().status == "failed"


def test_a_chain_passes_on_what_each_job_returned(schedq_tester: QueueTester) -> None:
    chain = show("https://example.org/photo-7")
    schedq_tester.fast_forward()

    assert chain.result(timeout=0) == "small photo-7 in the hall"


def test_the_programs_take_the_same_way_whenever_they_run_again(schedq_tester: QueueTester) -> None:
    order = fulfil.enqueue(17, 90)
    order.send("packed", "p1")
    jobs: list[Job[Any]] = [order, fulfil.enqueue(18, 900), approve.enqueue(BY_ADA), welcome.enqueue("ada")]
    jobs.append(research.enqueue("Which city is warmer?"))
    schedq_tester.fast_forward()

    for job in jobs:
        schedq_tester.assert_replays(job)
