"""What the doctor says of suspended runs of workflows."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from schedq import Queue
from schedq.doctor.runs import RUNS
from schedq.model import outcome
from schedq.model.groups import GroupDefinition
from schedq.model.runs import RunWait
from schedq.model.times import LAST_INSTANT_MS
from schedq.transitions import groups, run
from tests.cli.scenes import claimed
from tests.doctor.conftest import Examine, Found
from tests.transitions.run_scenes import begun

JOB = "queue:mail:job:order-17"
DELAYED = "queue:mail:delayed"
DAY_MS = 86_400_000
CODES = {check.code for check in RUNS}


def about_runs(found: Found) -> set[str]:
    return (found.codes | found.notes) & CODES


def now_ms() -> int:
    return int(time.time() * 1000)


def suspended(mail: Queue, *waits: RunWait) -> None:
    """The run `order-17` waits for these."""
    mail.enqueue(1, job_id="order-17")
    job = begun(claimed(mail))
    for wait in waits:
        if wait.group:
            made = GroupDefinition(wait.group, "g1", head='{"task":"load"', tail="}", wake=job.id)
            (filled,) = mail._client.execute([groups.fill(mail.settings, made, [',"args":[1]'], 0, close=True)])
            assert filled.total == 1
        elif wait.topic:
            timeout = None if wait.until_ms is None else wait.until_ms - now_ms()
            mail._ask(run.receive(mail.settings, job, wait.name, wait.topic, timeout))
    mail.settle(outcome.suspended(job, waits))


MESSAGE = RunWait("receive", "receive paid", None, "paid")
SLEEP = RunWait("sleep", "sleep", now_ms() + DAY_MS)
CHILD = RunWait("call", "call load", None, "", "run-1")


@pytest.mark.parametrize("waits", [(MESSAGE,), (SLEEP,), (CHILD,), (MESSAGE, SLEEP, CHILD)])
def test_a_run_that_something_wakes_is_not_mentioned(mail: Queue, diagnosis: Examine, waits: tuple[RunWait, ...]):
    suspended(mail, *waits)

    found = diagnosis()

    assert mail.job("order-17").status() == "delayed"
    assert about_runs(found) == set()


def postpone(client: Any) -> None:
    client.zadd(DELAYED, {"order-17": LAST_INSTANT_MS})


def rewait(client: Any, text: str) -> None:
    client.hset(JOB, "waits", text)
    postpone(client)


LOST: dict[str, tuple[RunWait, Any, str]] = {
    "the batch has ended": (
        CHILD,
        lambda it: it.hset("queue:mail:group:run-1", "status", "completed"),
        "batch run-1 that call load waits for is completed",
    ),
    "the batch is gone": (
        CHILD,
        lambda it: (it.delete("queue:mail:group:run-1"), it.zrem("queue:mail:groups", "run-1")),
        "batch run-1 that call load waits for is gone",
    ),
    "the batch wakes another": (
        CHILD,
        lambda it: it.hset("queue:mail:group:run-1", "wake", "other"),
        "batch run-1 that call load waits for does not wake it",
    ),
    "the message is there": (
        MESSAGE,
        lambda it: it.hset(JOB, "inbox:paid", f"{now_ms()} 7"),
        "a message for topic paid that receive paid waits for is there",
    ),
    "the instant was moved": (SLEEP, postpone, "the first of its waits ends in 24 h, and the job is due never"),
    "the waits are damaged": (MESSAGE, lambda it: it.hset(JOB, "waits", "[["), "what it waits for can't be read"),
    "a wait is damaged": (MESSAGE, lambda it: it.hset(JOB, "waits", '[["receive",1,{}]]'), "can't be read"),
    "it waits for nothing": (SLEEP, lambda it: rewait(it, "[]"), "it waits for no instant, no message and no batch"),
    "it waits for no instant": (
        SLEEP,
        lambda it: rewait(it, json.dumps([["sleep", "sleep", None, "", ""]])),
        "it waits for no instant, no message and no batch",
    ),
}


@pytest.mark.parametrize("case", LOST)
def test_a_run_that_nothing_wakes_is_named(mail: Queue, diagnosis: Examine, client: Any, case: str):
    wait, damage, text = LOST[case]
    suspended(mail, wait)
    damage(client)

    found = diagnosis()["run-not-woken"]

    assert (found.level, found.examples) == ("error", ("order-17",))
    assert found.means.startswith("run order-17 does not continue by itself: ")
    assert text in found.means
    assert "schedq reschedule ID --now --queue mail" in found.remedy
    assert mail.run_now("order-17")
    assert about_runs(diagnosis()) == set()


def test_a_run_that_has_waited_for_a_message_for_long_is_a_note(mail: Queue, diagnosis: Examine, client: Any):
    suspended(mail, MESSAGE)
    assert about_runs(diagnosis()) == set()
    client.hset(JOB, "until:receive paid", f"{LAST_INSTANT_MS} {now_ms() - 9 * DAY_MS}")

    found = diagnosis()["run-waits-long"]

    assert found.level == "note"
    assert found.means == "run order-17 has waited for 9 d for a message for topic paid"


def test_a_message_that_came_too_late_wakes_no_run(mail: Queue, diagnosis: Examine, client: Any):
    """It is left for the next wait."""
    suspended(mail, MESSAGE, SLEEP)
    client.hset(JOB, "waits", json.dumps([["receive", "receive paid", SLEEP.until_ms, "paid", ""]]))
    client.hset(JOB, "inbox:paid", f"{(SLEEP.until_ms or 0) + 1} 7")

    assert about_runs(diagnosis()) == set()


def test_a_queue_without_runs_costs_one_request(mail: Queue, diagnosis: Examine, ward: Any):
    mail.enqueue_many(range(1000), delay=600)

    with ward.requests() as requests:
        diagnosis("mail", sample=500)

    assert not [it for it in requests if it.words[-1] == "waits"]


def test_a_run_whose_steps_were_left_as_they_were_is_named(mail: Queue, diagnosis: Examine):
    mail.enqueue(1, job_id="order-17", max_attempts=1)
    job = begun(claimed(mail))
    job.run = mail._ask(run.add_undo(mail.settings, job, "charge", '[{"task":"refund"},null,null,null]')).rest[0]
    assert "run-not-undone" not in diagnosis().codes
    mail.fail(job, NameError("name 'shpi' is not defined"))

    found = diagnosis()["run-not-undone"]

    assert (found.level, found.examples) == ("warning", ("order-17",))
    assert found.means == "run order-17 did not undo 1 step: NameError: name 'shpi' is not defined"
    assert "schedq undo ID" in found.remedy
    assert mail.undo("order-17")
    assert "run-not-undone" not in diagnosis().codes
