"""20 tests, plain and async."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from schedq import ArgumentsError, JobFailed
from schedq.testing import QueueTester
from scripts.tools.kit.shop import charge, queue, remind, send


def test_a_mail_is_sent_by_a_job(schedq_tester: QueueTester, mails: list[str]) -> None:
    job = send.enqueue("ada")
    assert mails == []
    assert schedq_tester.run_due() == 1
    assert (job.result(timeout=0), mails) == ("ada", ["Hello, ada"])


@pytest.mark.parametrize("name", ["ada", "grace", "edsger", "barbara"])
def test_each_customer_gets_a_mail(schedq_tester: QueueTester, mails: list[str], name: str) -> None:
    send.enqueue(name, text="Welcome")
    schedq_tester.run_due()
    assert mails == [f"Welcome, {name}"]


def test_a_reminder_waits_for_three_days(schedq_tester: QueueTester) -> None:
    job = send.options(delay=timedelta(days=3)).enqueue("ada")
    assert schedq_tester.run_due() == 0
    schedq_tester.fast_forward(timedelta(days=2))
    assert job.status() == "delayed"
    schedq_tester.fast_forward(timedelta(days=1, seconds=1))
    assert job.status() == "completed"


def test_a_payment_is_repeated_and_announced(schedq_tester: QueueTester, mails: list[str]) -> None:
    job = charge.enqueue(17)
    schedq_tester.run_due()
    assert job.status() == "delayed"
    schedq_tester.fast_forward()
    assert (job.result(timeout=0), mails) == ("order 17 is paid", ["Paid, customer-17"])


def test_a_wrong_order_is_not_repeated(schedq_tester: QueueTester) -> None:
    job = charge.enqueue(-1)
    schedq_tester.run_due()
    with pytest.raises(JobFailed, match="there is no order -1"):
        job.result(timeout=0)


def test_what_was_enqueued_is_known(schedq_tester: QueueTester) -> None:
    send.options(delay=60, headers={"tenant": "acme"}).enqueue("ada")
    schedq_tester.assert_enqueued(send, ["ada"], delay=60)
    assert [job.headers for job in schedq_tester.enqueued] == [{"tenant": "acme"}]


def test_wrong_arguments_are_refused(schedq_tester: QueueTester) -> None:
    with pytest.raises(ArgumentsError):
        send.enqueue()  # type: ignore[call-arg]
    assert schedq_tester.run_due() == 0


def test_the_report_is_sent_daily(schedq_tester: QueueTester, mails: list[str]) -> None:
    schedq_tester.run_due()
    assert schedq_tester.fast_forward(timedelta(days=7)) == 7
    assert mails == ["report"] * 7


def test_a_cancelled_mail_is_not_sent(schedq_tester: QueueTester, mails: list[str]) -> None:
    job = send.options(delay=60).enqueue("ada")
    assert job.cancel()
    schedq_tester.fast_forward()
    assert mails == []


def test_a_paused_queue_waits(schedq_tester: QueueTester, mails: list[str]) -> None:
    queue.pause()
    send.enqueue("ada")
    assert schedq_tester.run_due() == 0
    queue.resume()
    schedq_tester.run_due()
    assert mails == ["Hello, ada"]


def test_a_hundred_mails_are_sent_in_order(schedq_tester: QueueTester, mails: list[str]) -> None:
    for number in range(100):
        send.enqueue(str(number))
    assert schedq_tester.run_due() == 100
    assert mails == [f"Hello, {number}" for number in range(100)]


async def test_async_code_enqueues_an_async_task(schedq_tester: QueueTester) -> None:
    job = await remind.aenqueue(17, date(2026, 3, 15))
    assert await schedq_tester.arun_due() == 1
    assert await job.aresult(timeout=0) == "order 17 on 15 March"


async def test_async_code_enqueues_a_plain_task(schedq_tester: QueueTester, mails: list[str]) -> None:
    await send.aenqueue("ada")
    await schedq_tester.arun_due()
    assert mails == ["Hello, ada"]


async def test_an_async_payment_is_repeated(schedq_tester: QueueTester) -> None:
    job = await charge.aenqueue(17)
    await schedq_tester.afast_forward()
    assert await job.astatus() == "completed"


async def test_async_reminders_are_due_one_after_the_other(schedq_tester: QueueTester, mails: list[str]) -> None:
    for days in (1, 2, 3):
        await send.options(delay=timedelta(days=days)).aenqueue(f"day {days}")
    await schedq_tester.afast_forward(timedelta(days=2, hours=1))
    assert [mail for mail in mails if mail != "report"] == ["Hello, day 1", "Hello, day 2"]


async def test_results_are_gathered(schedq_tester: QueueTester) -> None:
    jobs = [await remind.aenqueue(number, date(2026, 3, number)) for number in (1, 2)]
    await schedq_tester.arun_due()
    assert await queue.aio.gather_results(jobs, timeout=0) == ["order 1 on 01 March", "order 2 on 02 March"]


async def test_async_headers_reach_the_job(schedq_tester: QueueTester) -> None:
    job = await send.options(headers={"tenant": "acme"}).aenqueue("ada")
    await schedq_tester.arun_due()
    record = await job.arecord()
    assert record is not None
    assert record.headers == {"tenant": "acme"}
