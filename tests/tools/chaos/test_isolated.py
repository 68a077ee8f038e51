"""What `scripts/chaos --isolated` counts as a fault."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from scripts.tools.chaos.isolated import FAULTS, Findings, Kill, Start, judge, marked
from tests.waiting import until

WORDS = {"crash": "signal 11"}
DONE = ("completed", 6, "")


def judged(task: str, end: tuple[str, object, str] | None, starts: list[Start], *kills: Kill) -> dict[str, int]:
    """The faults that are found about one job, number 3."""
    found = Findings()
    judge({"a": (task, 3)}, {} if end is None else {"a": end}, {"a": starts}, kills, WORDS, found)
    assert len(found.complaints) == sum(getattr(found, fault) for fault in FAULTS)
    return {fault: count for fault in FAULTS if (count := getattr(found, fault))}


@pytest.mark.parametrize("kill", [Kill(1.5, 10), Kill(1.5, 1)])
def test_a_good_job_may_start_again_if_its_process_or_its_worker_was_killed(kill: Kill):
    assert judged("good", DONE, [Start(1, 10, 1), Start(3, 20, 2)], kill) == {}


@pytest.mark.parametrize("kills", [[], [Kill(0.5, 10)], [Kill(1.5, 30)]])
def test_a_good_job_that_starts_again_for_another_reason_was_disturbed(kills: list[Kill]):
    assert judged("good", DONE, [Start(1, 10, 1), Start(3, 20, 2)], *kills) == {"disturbed": 1}


@pytest.mark.parametrize(
    ("task", "end", "faults"),
    [
        ("good", DONE, {}),
        ("good", None, {"lost": 1}),
        ("good", ("processing", None, ""), {"lost": 1}),
        ("good", ("failed", None, "killed from outside"), {"disturbed": 1}),
        ("good", ("completed", 7, ""), {"disturbed": 1}),
        ("crash", ("failed", None, "its process was ended by signal 11 (SIGSEGV)"), {}),
        ("crash", ("failed", None, "its process was killed from outside"), {}),
        ("crash", ("failed", None, "its process ended with exit code 1"), {"misreported": 1}),
        ("crash", ("completed", None, ""), {"misreported": 1}),
    ],
)
def test_how_a_job_may_end(task: str, end: tuple[str, object, str] | None, faults: dict[str, int]):
    assert judged(task, end, [Start(1, 10, 1)]) == faults


def test_processes_are_found_by_a_mark_in_their_environment():
    mark = f"CHAOS_MARK=test.{os.getpid()}."
    name, _, value = mark.partition("=")
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], env={name: value}, stdin=subprocess.PIPE
    )
    try:
        until(lambda: marked(mark) == [process.pid])
    finally:
        process.communicate()
    assert marked(mark) == []
