"""Hours of limits in moments: what the five programs do, on virtual time."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from limits import imports
from limits.calls import fetch, forecast
from limits.customers import export
from limits.imports import ledger, load
from limits.provider import Provider, get_provider, send
from limits.search import index, reindex
from schedq import Job, JobRecord
from schedq.testing import QueueTester, override


def record_of(job: Job[None]) -> JobRecord:
    """What is stored about a job."""
    record = job.record()
    assert record is not None
    return record


def most_within(starts: list[float], seconds: float) -> int:
    """The most starts in any period of this length."""
    return max(sum(first <= start < first + seconds - 0.001 for start in starts) for first in starts)


def test_both_rates_hold_in_any_second_and_any_hour_for_both_tasks(schedq_tester: QueueTester) -> None:
    jobs = fetch.enqueue_many([fetch.with_args(f"city {number}") for number in range(60)])
    jobs += forecast.enqueue_many([forecast.with_args(f"city {number}", 3) for number in range(60)])
    schedq_tester.fast_forward()

    starts = sorted(record_of(job).started_at_ms / 1000 for job in jobs)
    assert most_within(starts, 1) <= 5
    assert 50 <= most_within(starts, 3600) <= 60
    assert starts[19] - starts[0] < 5


def test_an_export_of_a_small_customer_does_not_wait_for_a_large_one(
    schedq_tester: QueueTester, capsys: pytest.CaptureFixture[str]
) -> None:
    export.enqueue_many([export.with_args("large", month) for month in range(200)])
    export.enqueue("small", 1)
    schedq_tester.run_due()

    assert "export of small, month 1" in capsys.readouterr().out.splitlines()[:2]


def test_files_of_an_account_are_loaded_in_order_though_one_has_to_be_tried_again(
    schedq_tester: QueueTester, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([True, True])

    def read(file: str) -> None:
        if file == "a2" and next(failures, False):
            raise ConnectionError("the share is away")

    monkeypatch.setattr(imports, "read", read)
    load.enqueue_many([load.with_args(account, f"{account}{number}") for number in (1, 2, 3) for account in "ab"])

    schedq_tester.run_due()
    assert ledger == {"a": ["a1"], "b": ["b1", "b2", "b3"]}
    schedq_tester.fast_forward(timedelta(seconds=31))
    assert ledger["a"] == ["a1"]
    schedq_tester.fast_forward()
    assert ledger["a"] == ["a1", "a2", "a3"]


def test_a_document_is_indexed_once_after_the_last_edit(schedq_tester: QueueTester) -> None:
    for version in range(10):
        reindex.enqueue(17, f"version {version}")
        assert schedq_tester.fast_forward(1.5) == 0

    assert schedq_tester.fast_forward(2) == 1
    assert index == {17: "version 9"}


def test_a_document_that_is_edited_all_the_time_is_indexed_all_the_same(schedq_tester: QueueTester) -> None:
    indexed = 0
    for version in range(30):
        reindex.enqueue(17, f"version {version}")
        indexed += schedq_tester.fast_forward(1.5)

    assert indexed == 2  # in 45 seconds
    assert index == {17: "version 27"}


def test_an_account_that_is_refused_waits_and_others_go_on(schedq_tester: QueueTester) -> None:
    provider = Provider(schedq_tester.clock)
    with override(get_provider, lambda: provider):
        jobs = [send.enqueue(account, number) for number in range(10) for account in ("acme", "zeta")]
        schedq_tester.run_due()
        assert Counter(account for account, _ in provider.sent) == {"acme": 3, "zeta": 3}
        send.enqueue("other", 0)
        schedq_tester.run_due()
        assert provider.sent[-1] == ("other", 0)

        schedq_tester.fast_forward()

    assert [number for account, number in provider.sent if account == "acme"] == list(range(10))
    assert provider.refusals <= 8
    assert {record_of(job).attempts for job in jobs} == {1}
