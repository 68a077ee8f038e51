"""Situations in which a workflow waits, each set up for real, and the expected explanation."""

from __future__ import annotations

import time
from typing import Any, Final

from schedq import Queue
from schedq.model import outcome
from schedq.model.runs import RunWait
from schedq.transitions import run
from tests.cli.scenes import claimed
from tests.cli.whys import SOME, THREE_DAYS_S, Situation, Stage
from tests.transitions.run_scenes import begun

_MS: Final = 1000 * THREE_DAYS_S


def _suspended(*waits: RunWait) -> Stage:
    """A run that waits; a wait whose instant is 1 ends in three days."""

    def stage(queue: Queue, _: Any) -> str:
        job_id = queue.enqueue(1)
        job = begun(claimed(queue))
        if any(wait.kind == "receive" for wait in waits):
            queue._ask(run.receive(queue.settings, job, "receive", "paid", _MS))
        if any(wait.kind == "retry" for wait in waits):
            queue._ask(run.failed_try(queue.settings, job, "charge", 1, _MS, "no money"))
        later = int(time.time() * 1000) + _MS
        queue.settle(outcome.suspended(job, [wait._replace(until_ms=wait.until_ms and later) for wait in waits]))
        return job_id

    return stage


_MESSAGE: Final = rf'it has waited {SOME} for a message on topic "paid"'

SITUATIONS: Final = (
    Situation("it sleeps", _suspended(RunWait("sleep", "sleep", 1)), "suspended", "it sleeps for another 3 d"),
    Situation(
        "its step is tried again",
        _suspended(RunWait("retry", "charge", 1)),
        "suspended",
        "step charge is tried again in 3 d: try 1 failed with no money",
    ),
    Situation(
        "it waits for a message without a limit",
        _suspended(RunWait("receive", "receive", None, "paid")),
        "suspended",
        f"{_MESSAGE}$",
    ),
    Situation(
        "two branches of it wait",
        _suspended(RunWait("receive", "receive", 1, "paid"), RunWait("sleep", "1.2/sleep", 1)),
        "suspended",
        f"{_MESSAGE}, and waits another 3 d at the most; or it sleeps for another 3 d",
    ),
)
