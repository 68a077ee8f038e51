"""Texts in Redis may try to control a terminal: no command prints them unescaped."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import redis
from rich.table import Table
from rich.text import Text

from schedq.cli import output
from tests.cli.conftest import Run
from tests.dashboard.hostility import fill
from tests.servers import Server

EVIL = "\x1b]0;evil\x07\x1b[2J\r\u202ex\x9b31m"
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
STATES = ("pending", "delayed", "processing", "completed", "failed", "cancelled", "broken")
COMMANDS = (
    "stats",
    "stats mail",
    "jobs mail",
    *(f"jobs mail --limit 100 --state {state}" for state in STATES),
    "jobs mail --state failed --error a",
    *(f"job {state}0 --queue mail" for state in STATES),
    *(f"job j{n} --queue mail" for n in (0, 12, 15, 16)),
    "job evil --queue mail",
    "job evil",
    *(f"why {state}0 --queue mail" for state in STATES),
    "why j16 --queue mail",
    "why evil",
    "forecast mail --within 1h",
    "forecast --within 1h",
    "workers",
    "workers mail",
    "top --once",
    "top mail --once",
    "schedules ls mail",
    *(f"schedules show s{n} --queue mail" for n in (0, 15, 16)),
    "schedules next s16 --queue mail",
    "schedules slots s16 --queue mail",
    "doctor",
    "doctor mail",
    "cancel evil --queue mail",
    "requeue evil --queue mail",
    "reschedule evil --queue mail --delay 5",
    "requeue mail --all --yes",
    "stats nosuch",
    "pause nosuch",
    "enqueue mail --task send",
    "export mail",
)


@pytest.fixture
def hostile(desk: Server) -> redis.Redis:
    """A queue in which every text, every name of a field and every id is hostile."""
    with desk.lasting_client.pipeline(transaction=False) as pipeline:
        fill(pipeline)
        job: dict[Any, Any] = {"payload": json.dumps({"task": EVIL})}
        job |= dict.fromkeys((EVIL, "status", "last_error", "worker"), EVIL)
        pipeline.hset("queue:mail:job:evil", mapping=job)
        pipeline.sadd("schedq:queues", EVIL)
        for key in ("settings", "stats", "schedule:s16", "worker:w"):
            pipeline.hset(f"queue:mail:{key}", EVIL, EVIL)
        pipeline.execute()
    return desk.lasting_client


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_that_is_stored_steers_the_terminal(command: str, run: Run, hostile: redis.Redis):
    said = run(*command.split())

    assert said.out + said.err
    assert STEERING.findall(said.out + said.err) == []
    assert "Traceback" not in said.err


def test_names_of_fields_are_shown_with_their_escapes(run: Run, hostile: redis.Redis):
    lines = run("job", "evil", "--queue", "mail").out

    assert r"\x1b]0;evil\x07" in lines


def test_whatever_is_printed_for_people_is_escaped_also_if_a_command_forgets_to(capsys: pytest.CaptureFixture[str]):
    output.show(EVIL, Table(EVIL), Text(f"two\nlines {EVIL}"))
    output.warn(EVIL)

    said = capsys.readouterr()
    assert STEERING.findall(said.out + said.err) == []
    assert "two\nlines" in said.out
