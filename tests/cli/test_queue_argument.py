"""The queue of a command is its first argument or `--queue`, whichever a user types."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest

from schedq import Queue
from schedq.cli import cli
from tests.cli.conftest import Run

WHOLE_REDIS = {"worker", "dev", "dashboard", "exporter", "server", "health", "cron", "help", "completion", "demo"}
"""What concerns no single queue, or names it by APP."""
BY_BOTH = {
    "jobs": ["jobs"],
    "stats": ["stats"],
    "workers": ["workers"],
    "top": ["top", "--once"],
    "pause": ["pause"],
    "resume": ["resume"],
    "purge": ["purge", "--dry-run"],
    "export": ["export"],
    "forecast": ["forecast"],
    "doctor": ["doctor"],
    "gates ls": ["gates", "ls"],
    "batches ls": ["batches", "ls"],
    "schedules ls": ["schedules", "ls"],
    "workflows ls": ["workflows", "ls"],
}


def _options(command: click.Command) -> set[str]:
    return {text for param in command.params for text in param.opts}


@pytest.mark.parametrize("name", [name for name in cli.commands if name not in WHOLE_REDIS])
def test_every_command_on_a_queue_takes_it_as_an_option(name: str):
    command = cli.commands[name]
    parts = command.commands.values() if isinstance(command, click.Group) else [command]

    missing = [part.name for part in parts if "--queue" not in _options(part)]

    assert [part for part in missing if part != "upsert"] == []  # which takes APP


@pytest.mark.parametrize("words", BY_BOTH.values(), ids=list(BY_BOTH))
def test_both_ways_are_the_same(words: list[str], run: Run, make_queue: Callable[..., Queue]):
    for name in ("mail", "reports"):
        make_queue(name).enqueue(name)
    command = words[:2] if words[0] in ("gates", "batches", "schedules", "workflows") else words[:1]
    rest = words[len(command) :]

    by_place = run(*command, "reports", *rest)
    by_option = run(*command, "--queue", "reports", *rest)

    assert by_place.code == by_option.code
    assert "reports" in by_place.out
    assert ("mail" in by_option.out, "reports" in by_option.out) == (False, True)


def test_commands_on_several_queues_take_both_ways_together(run: Run, make_queue: Callable[..., Queue], tmp_path):
    for name in ("mail", "reports", "other"):
        make_queue(name).enqueue(name, job_id=f"in-{name}")
        assert run("cancel", f"in-{name}").code == 0

    assert run("archive", "mail", "--queue", "reports", "--to", str(tmp_path), "--once").code == 0

    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"mail", "reports"}


def test_payloads_and_files_follow_the_queue_wherever_it_is_named(run: Run, queue: Queue, tmp_path):
    for words in (["mail", "1"], ["--queue", "mail", "2"], ["3", "--queue=mail"], ["mail", "4", "--queue", "mail"]):
        assert run("enqueue", *words).code == 0
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"id": "a", "payload": 5}\n')
    assert run("import", "--queue", "mail", str(file)).code == 0

    assert sorted(job.payload for job in queue.list_pending()) == [1, 2, 3, 4, 5]


def test_the_variable_names_the_queue_except_where_jobs_are_deleted(
    run: Run, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    queue.enqueue(1, job_id="a")
    monkeypatch.setenv("SCHEDQ_QUEUE", "mail")

    assert run("jobs", "--json").json["queue"] == "mail"
    assert run("pause").lines[0].startswith("queue mail is paused")
    assert run("purge", "--yes").code == 2
    assert queue.job("a").status() == "pending"


@pytest.mark.parametrize("command", ["jobs", "tasks", "export"])
def test_a_command_that_only_looks_takes_the_only_queue_there_is(
    command: str, run: Run, make_queue: Callable[..., Queue]
):
    make_queue("mail").enqueue(1, job_id="a")
    assert (run(command).code, "a" in run(command).out) == (0, True)

    make_queue("reports").enqueue(1)
    said = run(command)

    assert (said.code, "there are 2 queues here: mail, reports" in said.complaint) == (2, True)


@pytest.mark.parametrize("command", ["jobs", "stats", "purge", "tail"])
def test_two_different_queues_are_refused(command: str, run: Run, queue: Queue):
    queue.enqueue(1)

    said = run(command, "mail", "--queue", "reports")

    assert (said.code, "two queues are given, mail and reports; give one" in said.complaint) == (2, True)


def test_a_forecast_takes_the_queue_and_the_duration(run: Run, make_queue: Callable[..., Queue]):
    for name in ("mail", "reports"):
        make_queue(name).enqueue(1, delay=60)

    assert (
        run("forecast", "reports", "2h").lines[0]
        == "queue reports, the next 2 h: 1 delayed job, 0 slots of 0 schedules"
    )
    assert run("forecast", "mail", "--json").json["queue"] == "mail"
    assert run("forecast", "2h", "--queue", "mail").lines[0].startswith("queue mail, the next 2 h")
    assert run("forecast", "mail", "2h", "3h").code == 2
