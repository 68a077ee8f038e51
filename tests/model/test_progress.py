"""What a handler may report, and how it is read from Redis."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from schedq import Progress, UsageError
from schedq.model.progress import MOST_META, ProgressReport, Reporter, of_fields
from schedq.testing import as_job
from tests.cases import for_each


class Seven:
    """A number of another library."""

    def __float__(self) -> float:
        return 7.0


@for_each([(3, 10, 0.3), (0, 10, 0.0), (2.5, 10, 0.25), (11, 10, 1.0), (0, 0, 1.0), (3, None, None)])
def test_the_fraction_is_the_share_that_is_done(case: tuple[float, float | None, float | None]):
    done, total, fraction = case

    assert Progress(done, total).fraction == fraction


@for_each([Decimal("7"), Fraction(7), Seven()])
def test_numbers_of_other_types_are_taken(number: Any):
    assert Progress(number, number) == Progress(7, 7)


@for_each([-1, math.nan, math.inf, "3", None, True, [3], 10**200, 3j])
def test_a_value_that_is_not_a_number_is_refused_by_its_name(number: Any):
    with as_job() as job:
        with pytest.raises(UsageError, match=r"^done must be a finite number of at least 0, got"):
            job.progress(number)
        if number is not None:
            with pytest.raises(UsageError, match=r"^total must be a finite number of at least 0, got"):
                job.progress(1, number)

    assert job.last_progress is None


def test_a_note_that_is_not_text_is_refused():
    with as_job() as job, pytest.raises(UsageError, match="note must be text, got 5"):
        job.progress(1, note=5)  # type: ignore[arg-type]


def test_a_note_is_one_short_line_without_control_characters():
    assert Progress(1, note="two\nlines,\ta tab").note == "two lines, a tab"
    assert Progress(1, note="\x1b[31mred").note == "�[31mred"
    assert Progress(1, note="é" * 1000).note == "é" * 199 + "…"


def test_a_handler_sees_its_last_report():
    with as_job() as job:
        job.progress(1, 10, "first")
        job.progress(2, 10)

        assert job.last_progress == Progress(2, 10)


def test_meta_is_added_to_and_read_back_as_a_copy():
    rows = [1]
    with as_job() as job:
        job.update_meta({"rows": rows, "page": 1})
        job.update_meta(page=2)
        rows.append(2)

        assert job.meta == {"rows": [1], "page": 2}
        with pytest.raises(TypeError):
            job.meta["page"] = 3
        job.meta["rows"].append(5)
        assert job.meta["rows"] == [1]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"text": "é" * 2100}, r"meta is 4,223 bytes of JSON, more than 4,096; store the data elsewhere"),
        ({"more": "x" * 4080}, r"meta is 4,10\d bytes of JSON"),
        ({"at": object()}, r"meta\['at'\] is a object, which is not JSON; use a JSON type"),
        ({1: 2}, r"meta has the key 1; JSON keys are strings"),
        ({"share": math.nan}, r"meta is not JSON"),
        ([("page", 1)], r"update_meta takes a mapping or keywords, got \[\('page', 1\)\]"),
    ],
)
def test_meta_that_can_not_be_stored_is_refused_and_changes_nothing(values: Any, why: str):
    with as_job() as job:
        job.update_meta(kept=True)

        with pytest.raises(UsageError, match=why):
            job.update_meta(values)

        assert job.meta == {"kept": True}


def test_meta_may_have_4096_bytes():
    with as_job() as job:
        job.update_meta(text="x" * (MOST_META - len('{"text":""}')))

        assert len(json.dumps(dict(job.meta), separators=(",", ":"))) == MOST_META


def test_only_changes_since_the_last_confirmation_are_waiting():
    reporter = Reporter("a", "a.1", lambda: None)
    assert not reporter.is_waiting

    reporter.set_progress(1, 10, "")
    sent = reporter.report()
    reporter.set_progress(2, 10, "")
    reporter.confirm(sent)
    assert reporter.is_waiting

    reporter.confirm(reporter.report())
    reporter.set_progress(2, 10, "")
    assert not reporter.is_waiting


def test_each_report_of_an_attempt_has_a_greater_number():
    reporter = Reporter("a", "a.1", lambda: None)
    reporter.set_progress(1, None, "")

    assert [reporter.report().number for _ in range(3)] == [1, 2, 3]


def test_a_report_leaves_out_values_that_were_not_given():
    assert ProgressReport.of("a", "t", (3, None, "")).progress == '"done":3'
    assert ProgressReport.of("a", "t", (3, 10, "half\nway")).progress == '"done":3,"total":10,"note":"half way"'
    assert ProgressReport.of("a", "t", None, "{}").progress == ""


STORED = '{"done":3,"total":10,"note":"now","attempt":2,"report":7,"at_ms":5}'


def test_stored_progress_is_that_of_the_present_attempt_only():
    fields = {"progress": STORED, "meta": '{"page":1}', "attempts": "2"}

    assert of_fields(fields) == (Progress(3, 10, "now", 5), {"page": 1})
    assert of_fields({**fields, "attempts": "3"}) == (None, {})


@for_each(
    [
        *("", "{", "[]", "5", "null", '{"done":"x"}', '{"done":-1}', '{"done":1e999}', '{"done":1,"total":[]}'),
        *('{"done":1,"note":5}', '{"attempt":[]}', "{}", '{"done":null}', "\udc80", "[" * 100_000),
    ]
)
def test_garbage_is_not_progress(text: str):
    assert of_fields({"progress": text, "meta": text, "attempts": "1"})[0] is None


@for_each(["", "{", "[1]", "5", "null", '"x"'])
def test_meta_that_is_not_an_object_is_none(text: str):
    assert of_fields({"progress": '{"done":1}', "meta": text})[1] == {}


def test_another_program_need_only_write_done():
    assert of_fields({"progress": '{"done": 3, "total": 4}', "attempts": "7"})[0] == Progress(3, 4)
