"""Ids of jobs and requests: new, sortable, unique across threads and forks."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedq import UsageError
from schedq.model import ids
from schedq.model.cached_property import cached_property
from schedq.model.ids import new_ids, new_request
from schedq.model.keys import QueueKeys, checked_id, checked_name
from schedq.model.records import JobRecord, score_ms, whole
from schedq.model.times import LAST_INSTANT_MS
from tests.pages import ROOT


def test_ids_sort_in_the_order_in_which_they_were_made():
    ids = [job_id for _ in range(200) for job_id in new_ids(7)]

    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_ids_made_together_count_on_from_one_to_the_next():
    ticks = [int(job_id[:13], 32) for job_id in new_ids(3000)]

    assert ticks == list(range(ticks[0], ticks[0] + 3000))


def test_a_new_id_is_valid_and_shows_when_it_was_created():
    before = time.time_ns() // 1_000_000
    (job_id,) = new_ids()
    after = time.time_ns() // 1_000_000

    assert checked_id(job_id) == job_id
    assert re.fullmatch(r"[0-9a-v]{26}", job_id)
    assert before <= int(job_id[:13], 32) >> 15 <= after + 1000


def test_an_id_has_more_than_64_random_bits():
    """Every bit takes both values."""
    noise = [int(job_id[13:], 32) for job_id in new_ids(300)]

    assert all(0 < sum(number >> bit & 1 for number in noise) < 300 for bit in range(65))


def test_a_clock_that_goes_back_does_not_reverse_the_order(monkeypatch: pytest.MonkeyPatch):
    (first,) = new_ids()
    monkeypatch.setattr(ids, "wall_ns", lambda: 1_000_000_000)

    (second,) = new_ids()

    assert first < second


def test_threads_never_make_the_same_id():
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda _: new_ids(50), range(200)))

    ids = [job_id for batch in batches for job_id in batch]
    assert len(set(ids)) == len(ids)
    assert all(batch == sorted(batch) for batch in batches)


FORKING = """
import ctypes, os
from schedq.model.ids import new_ids, new_request

new_ids()
child = {fork}()
made = [*new_ids(100), new_request()]
if child:
    os.waitpid(child, 0)
print(*made, flush=True)
"""


@pytest.mark.parametrize("fork", ["os.fork", "ctypes.PyDLL(None).fork"], ids=["by Python", "by a server written in C"])
def test_a_forked_child_never_makes_its_parents_ids_or_requests(fork: str):
    # In a process of one thread: where a thread waits for the interpreter's lock, a child that C has forked waits for
    # that thread, which it does not have.
    program = FORKING.format(fork=fork)
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""

    theirs, mine = (line.split() for line in done.stdout.splitlines())

    assert len(mine) == len(theirs) == 101
    assert not set(theirs) & set(mine)
    # The last one is the id of the request; the last three of its 16 digits may coincide.
    assert not {job_id[13:] for job_id in theirs[:-1]} & {job_id[13:] for job_id in mine[:-1]}


def test_requests_are_random():
    requests = {new_request() for _ in range(1000)}

    assert len(requests) == 1000
    assert all(re.fullmatch(r"[0-9a-f]{16}", request) for request in requests)


# -- names and keys


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@given(
    st.text(max_size=70) | st.from_regex(NAME, fullmatch=True) | st.from_regex(r"[\w.:{}*?\[\]-]{1,66}", fullmatch=True)
)
def test_a_name_is_taken_or_refused_by_the_rule_and_nothing_else(text: str):
    if NAME.fullmatch(text):
        assert checked_name(text) == text
    else:
        with pytest.raises(UsageError, match="queue name"):
            checked_name(text)


@given(st.text(max_size=70) | st.from_regex(r"[A-Za-z0-9_-]{1,66}", fullmatch=True))
def test_an_id_is_taken_or_refused_by_the_rule_and_nothing_else(text: str):
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", text):
        assert checked_id(text) == text
    else:
        with pytest.raises(UsageError, match="job id"):
            checked_id(text)


def all_keys(keys: QueueKeys) -> set[str]:
    names = [name for name, kind in vars(QueueKeys).items() if isinstance(kind, cached_property)]
    made = {getattr(keys, name) for name in names if name not in ("prefix", "jobs")}
    return made | {keys.job("a"), keys.worker("a"), keys.waiter("a")}


@given(st.from_regex(NAME, fullmatch=True), st.from_regex(NAME, fullmatch=True))
def test_no_key_of_one_queue_is_a_key_of_another(one: str, other: str):
    mine, theirs = QueueKeys(one), QueueKeys(other)

    assert all(key.startswith(f"queue:{one}:") for key in all_keys(mine))
    if one != other:
        assert not all_keys(mine) & all_keys(theirs)
        assert not any(key.startswith(mine.prefix) for key in all_keys(theirs))


def test_channels_name_their_database_but_for_the_first_and_keys_do_not():
    first, other = QueueKeys("mail"), QueueKeys("mail", db=12)

    assert (first.events, first.due, first.waiter("a")) == (
        "queue:mail:events",
        "queue:mail:due",
        "queue:mail:waiter:a",
    )
    assert (other.events, other.due, other.waiter("a")) == (
        "queue:mail:db12:events",
        "queue:mail:db12:due",
        "queue:mail:db12:waiter:a",
    )
    assert all_keys(first) - all_keys(other) == {first.events, first.due, first.waiter("a")}


def test_on_a_cluster_all_keys_of_a_queue_share_a_slot():
    assert all(key.startswith("queue:{mail}:") for key in all_keys(QueueKeys("mail", tagged=True)))


# -- numbers that others stored


@given(st.integers(0, 2**53 - 1))
def test_a_number_that_is_stored_is_read(number: int):
    assert whole(str(number)) == whole(f"{number}.0"[: None if number < 2**50 else -2]) == number


@pytest.mark.parametrize(
    "text", [None, "", "x", "-1", "nan", "inf", "-inf", "1e400", str(2**53), "0x10", [], {}, "9" * 5000]
)
def test_an_invalid_count_reads_as_none(text: object):
    assert whole(text) == 0


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("5", 5),
        ("5.2", 6),
        ("1e3", 1000),
        ("inf", LAST_INSTANT_MS),
        ("-inf", 0),
        ("-7.5", 0),
        ("nan", 0),
        ("x", 0),
        (None, 0),
    ],
)
def test_a_score_is_an_instant_rounded_up_and_bounded(text: object, ms: int):
    assert score_ms(text) == ms


@given(
    st.dictionaries(st.sampled_from(["status", "payload", "attempts", "history", "result", "crashes", "x"]), st.text())
)
def test_any_hash_is_a_record(fields: dict[str, str]):
    record = JobRecord.from_fields("a", fields)

    assert record.fields == fields
    assert record.attempts >= 0
