"""Settings of a queue: checked once, and read back by processes that lack them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedq import Exponential, Fixed, Queue, UsageError
from schedq.model.durability import LEVELS
from schedq.model.settings import KEEP_ALL, Settings


def test_a_queue_has_the_documented_default_settings():
    settings = Queue("mail", redis="redis://localhost").settings

    assert settings == Settings(
        "mail",
        visibility_ms=10_000,
        max_attempts=3,
        backoff=Exponential(base=2, factor=2, cap=600, jitter=0.5),
        completed_ttl=3600,
        completed_history=100_000,
        failed_history=10_000,
        min_keep=30,
        max_pending=None,
        max_payload=262_144,
        allow_eviction=False,
        retry_for=5,
        clock=None,
        durability="memory",
        replicas=1,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a b"},
        {"name": "a:b"},
        {"name": ""},
        {"name": None},
        {"visibility_ms": 0},
        {"visibility_ms": 10.0},
        {"visibility_ms": True},
        {"max_attempts": 0},
        {"max_attempts": "3"},
        {"backoff": 5},
        {"completed_ttl": -1},
        {"completed_ttl": float("nan")},
        {"completed_history": -2},
        {"failed_history": 1.5},
        {"min_keep": -1},
        {"max_pending": 0},
        {"max_payload": 0},
        {"retry_for": "long"},
        {"retry_for": 31},
        {"retry_for": timedelta(seconds=31)},
        {"completed_ttl": timedelta(seconds=-1)},
        {"unknown_for": -1},
        {"unknown_for": None},
        {"min_keep": 2},
        {"clock": 5},
        {"log_size": -1},
        {"durability": "disk"},
        {"replicas": 0},
    ],
    ids=repr,
)
def test_a_setting_that_makes_no_sense_is_refused_and_named(wrong: dict[str, Any]):
    (name,) = wrong

    with pytest.raises(UsageError, match="queue name" if name == "name" else name):
        Queue(**({"name": "mail", "redis": "redis://localhost"} | wrong))


def test_durations_may_be_timedeltas():
    queue = Queue(
        "mail",
        redis="redis://localhost",
        completed_ttl=timedelta(days=1),
        min_keep=timedelta(minutes=1),
        unknown_for=timedelta(hours=2),
        retry_for=timedelta(milliseconds=1500),
    )

    found = queue.settings
    assert (found.completed_ttl, found.min_keep, found.unknown_for, found.retry_for) == (86_400, 60, 7200, 1.5)
    assert Settings("mail", min_keep=timedelta(minutes=1)).to_fields()["min_keep"] == "60"  # type: ignore[arg-type]


def test_the_clock_is_read_again_each_time():
    times = iter([1.0, 2.0005])
    settings = Settings("mail", clock=lambda: next(times))

    assert [settings.now_argument(), settings.now_argument()] == ["1000", "2000"]
    assert Settings("mail").now_argument() == ""


SETTINGS = st.builds(
    Settings,
    st.just("mail"),
    visibility_ms=st.integers(1000, 10**9),
    max_attempts=st.integers(1, 10**6),
    backoff=st.builds(Fixed, st.integers(0, 1000)),
    completed_ttl=st.floats(0, 1e6),
    completed_history=st.integers(-1, 10**6),
    failed_history=st.integers(-1, 10**6),
    min_keep=st.floats(0.001, 1000),
    retry_for=st.just(0),
    log_size=st.integers(0, 10**6),
    durability=st.sampled_from(LEVELS),
    replicas=st.integers(1, 10),
)


@given(SETTINGS)
def test_what_one_process_writes_down_another_reads(settings: Settings):
    reader = Settings("mail", retry_for=0).without_application()

    assert reader.with_fields(settings.to_fields()) == settings  # as the release before stores them
    stored = {name: text for name, text in settings.stored_fields().items() if text}
    assert reader.with_fields(stored) == settings


def test_settings_that_have_their_defaults_are_not_stored():
    stored = {name: text for name, text in Settings("mail", max_attempts=7).stored_fields().items() if text}

    assert stored == {"max_attempts": "7", "failed_history": "10000"}


@given(st.dictionaries(st.sampled_from(sorted(Settings("mail").to_fields())), st.text()))
def test_whatever_is_stored_a_reader_gets_settings_that_make_sense(stored: dict[str, str]):
    found = Settings("mail").without_application().with_fields(stored)

    assert found.visibility_ms >= 1000
    assert found.max_attempts >= 1


def test_a_process_without_known_settings_trims_nothing():
    stranger = Settings("mail").without_application()

    assert (stranger.completed_history, stranger.failed_history) == (KEEP_ALL, KEEP_ALL)
    assert stranger.with_fields({}) == stranger


def test_a_process_does_not_send_again_after_records_may_have_been_deleted():
    """The application keeps records for 2 s, so a process that uses its settings gives up by then."""
    found = Settings("mail").without_application().with_fields(Settings("mail", min_keep=2, retry_for=1).to_fields())

    assert (found.min_keep, found.retry_for) == (2, 2)
