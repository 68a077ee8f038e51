"""When a notice is due: once for each change that lasts, until it is delivered, and at most one a minute."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schedq.doctor.checks import Finding
from schedq.doctor.examination import Report
from schedq.doctor.watching import TrackedFinding, Watch, WatchState

ORPHAN = Finding("orphan", "warning", "1 job that no list holds", "it never runs", "requeue it", "mail", ("a",), "", 1)
OTHER = replace(ORPHAN, queue="bulk")
DOWN = Finding("redis-unavailable", "error", "no reply", "nothing runs", "start it")


class Clock:
    """A watch, and the time that passes for it."""

    def __init__(self, state: WatchState | None = None, ignored: tuple[str, ...] = ()) -> None:
        self.watch = Watch(state or WatchState(), ("error", "warning"), ignored)
        self.now_s = 1_000_000.0

    def look(self, *findings: Finding, after: float = 30) -> list[str]:
        """Examine once, and deliver everything; what was said, in words."""
        self.see(*findings, after=after)
        return [self._deliver(tracked) for tracked in self.watch.due(self.now_s)]

    def see(self, *findings: Finding, after: float = 30) -> list[TrackedFinding]:
        """Examine once; the notices that are to be sent."""
        self.now_s += after
        self.watch.look(Report("redis://h", list(findings)), self.now_s)
        return self.watch.due(self.now_s)

    def restart(self) -> None:
        """Continue with what was stored."""
        self.watch = Watch(WatchState.from_json(self.watch.state.to_json()), ("error", "warning"))

    def _deliver(self, tracked: TrackedFinding) -> str:
        assert tracked.notice is not None
        words = tracked.notice.words
        self.watch.note_delivery(tracked, self.now_s)
        return words


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_finding_is_reported_when_it_appears_and_when_it_has_gone(clock: Clock):
    assert clock.look(ORPHAN) == ["orphan of queue mail appeared"]
    assert clock.look(ORPHAN) == []
    assert clock.look(ORPHAN) == []
    assert clock.look() == ["orphan of queue mail gone"]
    assert clock.look(after=90) == []
    assert clock.watch.state.findings == []


def test_a_notice_has_everything_that_a_person_needs(clock: Clock):
    (tracked,) = clock.see(ORPHAN)
    assert tracked.notice is not None
    content = dict(tracked.notice.content)

    assert len(content.pop("id")) == 16
    assert content == {
        "state": "appeared",
        "code": "orphan",
        "queue": "mail",
        "about": "",
        "severity": "warning",
        "text": "1 job that no list holds",
        "means": "it never runs",
        "remedy": "requeue it",
        "value": 1,
        "examples": ["a"],
        "since": "1970-01-12T13:47:10Z",
        "until": None,
        "at": "1970-01-12T13:47:10Z",
        "redis": "redis://h",
    }


def test_a_notice_about_an_end_says_from_when_to_when(clock: Clock):
    clock.look(ORPHAN)

    (tracked,) = clock.see(after=600)
    assert tracked.notice is not None

    assert (tracked.notice.content["since"], tracked.notice.content["until"]) == (
        "1970-01-12T13:47:10Z",
        "1970-01-12T13:57:10Z",
    )


def test_findings_of_two_queues_or_about_two_gates_are_two(clock: Clock):
    gates = [replace(ORPHAN, code="gate-full", about=name) for name in ("api", "mail")]

    assert clock.look(ORPHAN, OTHER) == ["orphan of queue mail appeared", "orphan of queue bulk appeared"]
    assert clock.look(ORPHAN, OTHER, *gates) == [
        "gate-full of queue mail api appeared",
        "gate-full of queue mail mail appeared",
    ]
    assert clock.look(OTHER, *gates, after=61) == ["orphan of queue mail gone"]


def test_other_figures_are_no_change(clock: Clock):
    clock.look(ORPHAN)

    assert clock.look(replace(ORPHAN, says="9 jobs", value=9), after=90) == []


def test_a_finding_that_comes_and_goes_is_reported_once_a_minute(clock: Clock):
    said = [clock.look(*found, after=5) for found in [(ORPHAN,), ()] * 24]

    assert said[0] == ["orphan of queue mail appeared"]
    assert sum(map(len, said)) == 4  # in four minutes


def test_a_finding_that_is_back_within_the_minute_is_not_reported_again(clock: Clock):
    clock.look(ORPHAN)

    assert clock.look(after=20) == []
    assert clock.look(ORPHAN, after=20) == []
    assert clock.look(ORPHAN, after=90) == []


def test_a_notice_that_fails_is_sent_again_with_growing_pauses(clock: Clock):
    (tracked,) = clock.see(ORPHAN)
    notice = tracked.notice
    assert notice is not None
    pauses = []
    for _ in range(9):
        pauses.append(clock.watch.note_failure(tracked, clock.now_s))
        assert clock.watch.due(clock.now_s + pauses[-1] - 1) == []
        clock.now_s += pauses[-1]
        assert [it.notice for it in clock.watch.due(clock.now_s)] == [notice]

    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_an_appearance_that_was_not_delivered_is_not_lost_when_the_finding_goes(clock: Clock):
    (tracked,) = clock.see(ORPHAN)
    clock.watch.note_failure(tracked, clock.now_s)

    assert clock.look(after=10) == ["orphan of queue mail appeared"]
    assert clock.look(after=61) == ["orphan of queue mail gone"]


def test_a_restart_loses_no_notice_and_repeats_none(clock: Clock):
    clock.look(ORPHAN)
    (tracked,) = clock.see(ORPHAN, OTHER)
    assert tracked.notice is not None
    notice_id = tracked.notice.content["id"]
    clock.watch.note_failure(tracked, clock.now_s)

    clock.restart()

    (again,) = clock.see(ORPHAN, OTHER)
    assert again.notice is not None
    assert again.notice.content["id"] == notice_id
    assert clock.look(OTHER, after=31) == ["orphan of queue bulk appeared", "orphan of queue mail gone"]


def test_what_is_unknown_while_redis_is_down_is_not_gone(clock: Clock):
    clock.look(ORPHAN)

    assert clock.look(DOWN, after=90) == ["redis-unavailable appeared"]
    assert clock.look(DOWN, after=90) == []
    assert clock.look(ORPHAN, after=90) == ["redis-unavailable gone"]


def test_notes_and_what_is_ignored_are_not_reported():
    clock = Clock(ignored=("orphan",))

    assert clock.look(ORPHAN, replace(ORPHAN, code="paused", level="note")) == []


def test_a_clock_that_goes_back_delays_nothing(clock: Clock):
    (tracked,) = clock.see(ORPHAN)
    clock.watch.note_failure(tracked, clock.now_s)

    assert clock.look(ORPHAN, after=-86_400) == ["orphan of queue mail appeared"]
    assert clock.look(after=-86_400) == ["orphan of queue mail gone"]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1, "findings": [{"finding": 1}]}'])
def test_a_damaged_state_is_recognized(data: bytes):
    with pytest.raises(ValueError, match=r".+"):
        WatchState.from_json(data)
