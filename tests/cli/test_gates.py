"""`schedq gates` shows gates and changes them; other commands choose jobs by gate and key."""

from __future__ import annotations

import pytest

from schedq import NewJob, Queue, Rate
from tests.cli.conftest import Run

QUEUE = "mail"
WITHOUT_EFFECT = ("set", "line", "--key-concurrency", "2")


@pytest.fixture
def busy(queue: Queue) -> Queue:
    """A queue with a gate of which one job runs and four wait."""
    queue.gate(
        "api", concurrency=2, key_concurrency=1, rate=Rate(6000, per=60, burst=2)
    )  # a second start is allowed at once
    queue.enqueue_many([NewJob(n, gate="api", key=key) for n, key in enumerate("aaabb")])
    assert queue.claim(0) is not None
    return queue


def test_a_limit_that_would_have_no_effect_is_refused(run: Run, busy: Queue) -> None:
    busy.gates.set("line", serial=True)

    assert "gate line is serial: it runs one job of a key at a time" in run("gates", *WITHOUT_EFFECT).complaint
    assert run("gates", *WITHOUT_EFFECT, "--no-serial").lines == [
        "gate line of queue mail: concurrency of a key 2 (set by an operator); serial no limit (set by an operator)"
    ]


def test_gates_and_their_keys_are_shown(run: Run, busy: Queue) -> None:
    title, row = (line.split() for line in run("gates", "ls").lines)
    assert title[:6] == ["gate", "waiting", "keys", "ready", "running", "state"]
    assert row[:7] == ["api", "4", "2", "1", "1", "of", "2"]
    assert "6,000 a minute" in " ".join(row)

    shown = run("gates", "show", "api").out
    assert "concurrency of a key" in shown
    assert "4 jobs of 2 keys" in shown
    assert [line.split() for line in run("gates", "keys", "api").lines[1:]] == [
        ["a", "2", "1", "full"],
        ["b", "2", "0", "ready"],
    ]
    assert [key["key"] for key in run("gates", "keys", "api", "--state", "full", "--json").json["keys"]] == ["a"]
    (gate,) = run("gates", "ls", "--json").json["gates"]
    assert gate["limits"]["rate"] == [{"n": 6000, "per": 60, "burst": 2}]
    assert (gate["waiting"], gate["running"], gate["in_code"], gate["set_by_operator"]) == (4, 1, True, [])


def test_limits_are_set_and_reset(run: Run, busy: Queue) -> None:
    said = run("gates", "set", "api", "--concurrency", "0", "--key-rate", "10/s,100/m", "--weight", "2").lines
    assert said == [
        "gate api of queue mail: concurrency no limit (set by an operator); rate 6,000 a minute; "
        "concurrency of a key 1; rate of a key 10 a second, 100 a minute (set by an operator); "
        "weight 2 (set by an operator)"
    ]
    assert run("gates", "reset", "api").lines == [
        "gate api of queue mail: limits of the code hold again: concurrency 2; rate 6,000 a minute; "
        "concurrency of a key 1"
    ]
    assert run("gates", "set", "--concurrency", "200").lines == ["the queue mail: concurrency 200 (set by an operator)"]
    assert run("gates", "set", "--rate", "1000/s", "--json").json["set_by_operator"] == ["concurrency", "rate"]
    assert run("gates", "reset", "--json").json == {"queue": QUEUE, "gate": None, "was_set": True}
    assert run("gates", "remove", "api", "--yes").lines == ["gate api of queue mail has no limits now"]


def test_a_gate_or_a_key_is_paused_held_and_resumed(run: Run, busy: Queue) -> None:
    assert run("gates", "pause", "api").lines == [
        "gate api of queue mail is paused; 4 jobs of 2 keys waiting, 1 running"
    ]
    assert run("gates", "ls").lines[1].split()[7] == "paused"
    assert run("gates", "resume", "api", "--json").json == {"queue": QUEUE, "gate": "api", "key": None, "changed": True}
    assert run("gates", "hold", "api", "--for", "30s", "--key", "b").lines == [
        "key b of gate api of queue mail is held for 30 s"
    ]
    assert run("gates", "hold", "api", "--for", "5", "--key", "b").lines == [
        "key b of gate api of queue mail was already held for longer"
    ]
    assert [key["because"] for key in run("gates", "keys", "api", "--state", "resting", "--json").json["keys"]] == [
        "hold"
    ]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("pause apj", "queue mail has no gate apj; did you mean api?; --force names a new one"),
        ("keys other", "queue mail has no gate other; it has api"),
        ("set api", "give a limit to set, such as --concurrency 10"),
        ("set api --rate fast", "'fast' is not a rate; write 10/s, 500/m, 20000/h or 1000/30s"),
        ("set --weight 2", "the queue itself has no weight"),
        ("pause a:b", "gate name 'a:b' must be 1 to 48 characters"),
        ("remove api", "this needs confirmation"),
    ],
)
def test_a_mistake_is_named_with_the_way_out(run: Run, busy: Queue, command: str, words: str) -> None:
    before = busy.gates.list()[0].limits

    assert words in run("gates", *command.split()).complaint
    assert busy.gates.list()[0].limits == before


def test_jobs_are_enqueued_listed_and_cancelled_by_gate_and_key(run: Run, busy: Queue) -> None:
    (job_id,) = run("enqueue", QUEUE, "9", "--gate", "api", "--key", "42").lines

    assert [job["id"] for job in run("jobs", QUEUE, "--gate", "api", "--key", "42", "--json").json["jobs"]] == [job_id]
    assert len(run("jobs", QUEUE, "--gate", "api", "--state", "pending", "--json").json["jobs"]) == 5
    assert run("jobs", QUEUE, "--gate", "other", "--json").json["jobs"] == []
    run("cancel", "--gate", "api", "--key", "42", "--yes")
    job = busy.get_job(job_id)
    assert job is not None
    assert job.status == "cancelled"
    assert "no gate other yet" in run("enqueue", QUEUE, "9", "--gate", "other").err
    assert "--key needs --gate" in run("enqueue", QUEUE, "9", "--key", "42").complaint
    assert "needs a gate" in run("jobs", QUEUE, "--key", "42").complaint


def test_the_forecast_says_how_long_a_gate_needs_for_what_waits(run: Run, busy: Queue) -> None:
    busy.gates.set("api", rate=Rate(1, per=60))

    assert run("forecast").lines[-1] == "gate api: 4 jobs of 2 keys waiting, at most 1 a minute: 4 min or more"
    assert run("forecast", "--json").json["gates_drained_in_ms"] == {"api": 240_000}


def test_stats_show_gates(run: Run, busy: Queue) -> None:
    assert "open; 4 jobs of 2 keys waiting, 1 of 2 running" in run("stats", QUEUE).out
