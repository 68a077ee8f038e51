"""What the doctor says of gates."""

from __future__ import annotations

import time
from typing import Any

import pytest

from schedq import Queue
from tests.cli.scenes import claimed
from tests.doctor.conftest import Examine

PREFIX = "queue:mail:"


def test_a_gate_without_a_definition_is_named_if_jobs_wait_in_it(mail: Queue, diagnosis: Examine) -> None:
    mail.enqueue_many([1, 2], gate="apj")

    found = diagnosis()["gate-undefined"]

    assert found.says == "gate apj has no limits: 2 jobs wait in it, and no code or operator has defined it"
    assert "schedq gates set apj --queue mail" in found.remedy
    mail.gates.set("apj", concurrency=5)
    assert not diagnosis().codes & {"gate-undefined", "gate-damaged"}


def test_damaged_limits_are_named(mail: Queue, diagnosis: Examine, client: Any) -> None:
    client.hset(PREFIX + "gates", mapping={"api": '{"concurrency":"many","rate":[[1,2]]}', "api code": "{}"})

    assert diagnosis("mail")["gate-damaged"].says == "limits of gate api can't be read: concurrency, rate"


def test_a_paused_gate_is_named_if_jobs_wait_in_it(mail: Queue, diagnosis: Examine) -> None:
    mail.gates.set("api", concurrency=5)
    mail.gates.pause("api")
    assert "gate-paused" not in diagnosis().codes
    mail.enqueue(1, gate="api")

    assert diagnosis()["gate-paused"].says == "gate api is paused: 1 job waits"


def test_a_gate_is_named_that_has_been_full_for_long(mail: Queue, diagnosis: Examine, client: Any) -> None:
    mail.gates.set("api", concurrency=1)
    mail.enqueue_many([1, 2], gate="api")
    job = claimed(mail)
    assert "gate-full" not in diagnosis().codes
    client.hset(f"{PREFIX}job:{job.id}", "started_at_ms", int(time.time() * 1000) - 3_600_000)

    says = diagnosis()["gate-full"].says

    assert says == "gate api is full (1 of 1 running), a job of it has been running for 60 min, and 1 job waits"


@pytest.mark.parametrize(
    "name", ["gates", "open_gates", "resting", "gate_holds", "gate_turns", "gate:api:ready", "gate:api:running"]
)
def test_a_key_of_a_wrong_type_is_named(name: str, mail: Queue, diagnosis: Examine, client: Any) -> None:
    mail.gates.set("api", concurrency=1)
    mail.enqueue_many([1, 2], gate="api")
    claimed(mail)
    client.delete(PREFIX + name)
    client.sadd(PREFIX + name, "x")

    assert diagnosis("mail")["wrong-type"].examples == (PREFIX + name,)
