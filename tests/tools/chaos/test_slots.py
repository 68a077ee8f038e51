"""Verdicts on a schedule's slots: invented accounts, each with one violation or one allowed exception.

The server's clock shows BASE_MS at 0 s. Slots are one second apart, and the schedule is closed before the slot at 10 s.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from scripts.tools.chaos.evidence import MUST_BE_ZERO, Evidence, Verdict
from scripts.tools.chaos.faults import SERVER, Fault
from scripts.tools.chaos.journal import Journal
from scripts.tools.chaos.servertime import ServerTime, Step
from scripts.tools.chaos.stalls import Stalls
from scripts.tools.chaos.timetable import Line, Plan
from scripts.tools.chaos.verdict import judge

Record = tuple[str, list[Any]]
BASE_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
FIRST, LAST = 3, 9
FAR_S = 200


def at(second: float) -> int:
    """The server's clock at that time, if it is not set."""
    return BASE_MS + round(second * 1000)


def ran(second: int, name: str = "latest", *, begun: float = 0, token: str = "") -> list[Record]:
    """A slot's job, from the records of the worker that ran it."""
    job_id, token, start = f"{name}-{at(second)}", token or f"t{second}", begun or second + 0.1
    return [
        ("w-1", ["claim", start, token]),
        ("w-1", ["claimed", start, token, [[job_id, token, 1, 0]]]),
        ("w-1", ["start", start, job_id, 1, token, job_id, 0.0]),
        ("w-1", ["end", start + 0.1, job_id, 1, token, "done"]),
        ("w-1", ["settle", start + 0.1, int(start * 100), [["complete", job_id, token, 0]]]),
        ("w-1", ["settled", start + 0.2, int(start * 100), ["OK"], 1]),
    ]


def held(process: str = "p-1", until: int = 20) -> list[Record]:
    """A promoter that holds the lease from the beginning, by its own records."""
    return [(process, ["held", float(second), "queue:q:pending"]) for second in range(until)]


def coalesced(first: int, last: int, into: int, *, seen: float = 0) -> Line:
    return Line(at(first), at(last), "coalesced", str(at(into)), at(seen or into + 0.1))


def fired(second: int, *, seen: float = 0) -> Line:
    return Line(at(second), at(second), "fired", f"latest-{at(second)}", at(seen or second + 0.05))


def every(*, but: Sequence[int] = ()) -> list[list[Record]]:
    """The jobs of all slots except for some."""
    return [ran(second) for second in range(FIRST, LAST + 1) if second not in but]


def verdict(
    *parts: Sequence[Record],
    lines: Sequence[Line] = (),
    faults: Sequence[Fault] = (),
    steps: Sequence[Step] = (),
    catch_up: str = "latest",
    next_ms: int = at(LAST + 1),
    more: int = 0,
) -> Verdict:
    """The verdict; the server's counter matches the jobs plus `more`."""
    journal = Journal.of(record for part in parts for record in part)
    samples = [(float(n), float(at(n))) for n in range(FAR_S + 1)]
    plan = Plan("latest", "q", catch_up, 2.5, set(lines), at(2.5), next_ms)
    known = {*journal.jobs} | {line.what for line in lines if line.outcome == "fired"}
    final = dict.fromkeys(journal.jobs, "completed")
    stalls = Stalls(faults, journal.gaps, [])
    time = ServerTime(samples, steps)
    return judge(Evidence(journal, stalls, time, faults, final, {}, FAR_S, [plan], {"q": len(known) + more}))


def wrong(found: Verdict) -> dict[str, int]:
    """The counters that should be zero but are not."""
    return {name: getattr(found, name) for name in MUST_BE_ZERO if getattr(found, name)}


def test_a_job_for_each_slot_passes():
    found = verdict(*every(), lines=[fired(4), fired(5)])

    assert wrong(found) == {}
    assert (found.slots, found.slots_coalesced, found.slots_leapt) == (LAST - FIRST + 1, 0, 0)


@pytest.mark.parametrize("second", [FIRST, 5, LAST])
def test_a_slot_without_an_outcome_is_missed(second: int):
    assert wrong(verdict(*every(but=[second]))) == {"slots_missed": 1}


def test_a_skipped_slot_is_missed():
    skipped = Line(at(5), at(5), "skipped", "late", at(6))

    assert wrong(verdict(*every(but=[5]), lines=[skipped])) == {"slots_missed": 1}


def test_a_job_that_only_the_schedules_history_knows_is_lost():
    assert wrong(verdict(*every(but=[5]), lines=[fired(5)])) == {"lost": 1}


def test_a_schedule_of_which_nothing_is_known_in_the_end_is_noticed():
    assert wrong(verdict(*every(), next_ms=0)) == {"slots_missed": 1}


@pytest.mark.parametrize(
    "fault",
    [
        Fault("redis_kill", 3.9, 6.05, SERVER),
        Fault("server_slow", 3.9, 6.05, SERVER),
        Fault("memory_squeeze", 3.9, 6.05, SERVER),
        Fault("worker_kill", 3.5, math.inf, "p-1"),
        Fault("worker_stop", 3.5, 9, "p-1"),
        Fault("black_hole", 3.5, 5, "p-1"),
    ],
    ids=lambda fault: f"{fault.kind} of {fault.target}",
)
def test_the_last_slot_of_an_outage_may_replace_the_others(fault: Fault):
    found = verdict(*every(but=[4, 5]), held(until=4), lines=[coalesced(4, 5, 6)], faults=[fault])

    assert wrong(found) == {}
    assert (found.slots, found.slots_coalesced) == (LAST - FIRST + 1, 2)


@pytest.mark.parametrize(
    "faults",
    [
        [],
        [Fault("worker_kill", 3.5, math.inf, "p-2")],
        [Fault("redis_kill", 0.5, 0.6, SERVER)],
        [Fault("script_flush", 4, 6, SERVER)],
    ],
    ids=["no fault", "one of a process without the lease", "one before", "one that stops no process"],
)
def test_a_slot_that_went_into_another_without_an_outage_is_missed(faults: Sequence[Fault]):
    found = verdict(*every(but=[4, 5]), held(), lines=[coalesced(4, 5, 6)], faults=faults)

    assert wrong(found) == {"slots_missed": 2}


def test_slots_of_an_outage_whose_last_one_has_no_job_are_missed():
    outage = [Fault("redis_kill", 3.9, 6.05, SERVER)]

    assert wrong(verdict(*every(but=[4, 5, 6]), lines=[coalesced(4, 5, 6)], faults=outage)) == {"slots_missed": 3}


def test_no_slot_may_go_into_another_where_all_are_caught_up_on():
    outage = [Fault("redis_kill", 3.9, 6.05, SERVER)]
    found = verdict(*every(but=[4, 5]), lines=[coalesced(4, 5, 6)], faults=outage, catch_up="all")

    assert wrong(found) == {"slots_missed": 2}


def test_slots_that_the_servers_clock_leapt_over_go_into_one():
    there = [Step(5.5, 5.6, HOUR_MS), Step(8.5, 8.6, 0)]
    last = 3600 + 5
    leapt = coalesced(6, last - 1, last, seen=last + 0.7)
    seen = [ran(last, begun=6), ran(last + 1, begun=7.1), ran(last + 2, begun=8.1)]
    found = verdict(*[ran(n) for n in (3, 4, 5)], *seen, lines=[leapt], steps=there, next_ms=at(last + 3))

    assert wrong(found) == {}
    assert (found.slots, found.slots_leapt, found.slots_coalesced) == (3605, 3599, 0)


def test_slots_that_the_servers_clock_leapt_over_may_all_have_jobs():
    there = [Step(5.5, 5.6, HOUR_MS), Step(8.5, 8.6, 0)]
    seen = [ran(second, "latest", begun=6 + second / 100) for second in range(6, 100)]
    found = verdict(*[ran(n) for n in (3, 4, 5)], *seen, steps=there, catch_up="all", next_ms=at(100))

    assert wrong(found) == {}
    assert (found.slots, found.slots_leapt) == (97, 0)


def test_slots_that_were_waited_for_while_the_clock_was_set_back_are_of_that_step():
    there = [Step(4.5, 4.6, -HOUR_MS), Step(7.5, 7.6, 0)]
    found = verdict(*every(but=[5, 6, 7]), ran(7, begun=7.9), lines=[coalesced(5, 6, 7, seen=7.8)], steps=there)

    assert wrong(found) == {}
    assert (found.slots_leapt, found.slots_coalesced) == (2, 0)


def test_a_slot_with_a_job_that_another_slot_replaces_is_doubled():
    outage = [Fault("redis_kill", 3.9, 6.05, SERVER)]

    assert wrong(verdict(*every(), lines=[coalesced(4, 5, 6)], faults=outage)) == {"slots_twice": 2}


def test_a_slot_that_was_accounted_for_twice_is_doubled():
    assert wrong(verdict(*every(), lines=[fired(5), fired(5, seen=5.3)])) == {"slots_twice": 1}


def test_a_slot_whose_job_was_made_and_completed_again_is_doubled():
    found = verdict(*every(), ran(5, begun=9, token="again"), more=1)

    assert (found.slots_twice, found.after_completion) == (2, 1)


def test_a_job_that_the_server_counted_but_no_process_reported_is_noticed():
    assert wrong(verdict(*every(), more=1)) == {"slots_twice": 1}


def test_a_job_that_began_before_its_slot_is_early():
    assert wrong(verdict(*every(but=[5]), ran(5, begun=4.9))) == {"early": 1, "illegal": 1}


def test_a_job_of_a_slot_that_is_still_to_come_is_early():
    assert wrong(verdict(*every(), ran(LAST + 1))) == {"early": 1}


def test_a_job_of_no_slot_is_noticed():
    found = verdict(*every(), [(process, _moved(fields)) for process, fields in ran(5, begun=6, token="odd")])

    assert wrong(found) == {"early": 1}


def _moved(fields: list[Any]) -> list[Any]:
    """The same job half a second after the slot."""
    old, new = f"latest-{at(5)}", f"latest-{at(5.5)}"
    read: list[Any] = json.loads(json.dumps(fields).replace(old, new))
    return read
