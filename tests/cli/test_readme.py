"""README's blocks of shell: every line of them is right, and those that end by themselves do what they say."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from schedq import Discard, Queue
from schedq.cli import cli
from tests.cli.conftest import Run
from tests.servers import Server

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
LINES = [line for block in BLOCKS for line in block.splitlines()]
ENDLESS = {"worker", "top", "dashboard", "tail", "promoter", "exporter", "health", "server"}
"""Commands that serve until they are told to stop, or want something that serves."""
ASIDE = {"pip", "python", "cd", "uvicorn", "scripts/demo", "scripts/test", "redis-cli"}
"""What else the blocks call; each has a test of its own, here or with the examples."""
STATE = {"requeue": "failed", "reschedule": "delayed"}


def commands(line: str) -> list[list[str]]:
    """The commands of a line, as words; redirections and comments left out."""
    inner = re.findall(r"\$\((.*?)\)", line)
    words = shlex.split(re.sub(r"\"\$\(.*?\)\"", "X", line), comments=True)
    found: list[list[str]] = [[]]
    skips = False
    for word in words:
        if word in ("|", "&&", "&"):
            found.append([])
        elif word in (">", "<"):
            skips = True
        elif not skips:
            found[-1].append(word)
        else:
            skips = False
    return [words for words in found if words] + [shlex.split(text) for text in inner]


def of_schedq() -> list[list[str]]:
    """The arguments of every call of schedq."""
    return [words[1:] for line in LINES for words in commands(line) if words[0] == "schedq"]


def test_the_blocks_call_schedq_and_little_else():
    called = {words[0] for line in LINES for words in commands(line)}

    assert called - {"schedq", "eval"} <= ASIDE


@pytest.mark.parametrize("arguments", of_schedq(), ids=" ".join)
def test_every_command_is_there_with_its_options(arguments: list[str]):
    group: Any = cli
    context = click.Context(group, info_name="schedq")
    words = list(arguments)
    while isinstance(group, click.Group) and words:
        _, command, words = group.resolve_command(context, words)
        assert command is not None
        context, group = click.Context(command, parent=context, info_name=words[0] if words else ""), command
        if not isinstance(command, click.Group):
            command.make_context("schedq", words, parent=context)


@pytest.mark.parametrize(
    "arguments", [words for words in of_schedq() if words[0] not in ENDLESS and "app:queue" not in words], ids=" ".join
)
def test_what_ends_by_itself_ends_well(arguments: list[str], run: Run, queue: Queue):
    """ID is the id of a job, and mail the only queue."""
    state = STATE.get(arguments[0], "pending")
    queue.enqueue({"task": "send"}, job_id="ID", delay=60 if state == "delayed" else None)
    queue.schedules.upsert("nightly", cron="0 3 * * *", task="send")
    if state == "failed":
        job = queue.claim(0)
        assert job
        queue.fail(job, Discard("no"))
    asks = "purge" in arguments or ("requeue" in arguments and "--dry-run" not in arguments)

    said = run(*arguments, *(["--yes"] if asks else []))

    assert "Traceback" not in said.err
    assert said.code == 0 or (arguments[0] == "doctor" and said.code == 1), said.err


def test_extras_that_are_installed_exist():
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = {name for line in LINES if line.startswith("pip") for name in re.findall(r"\[(\w+)\]", line)}

    assert named
    assert named <= extras


def test_what_is_asked_of_redis_is_understood_and_makes_a_job(desk: Server, make_queue: Callable[..., Queue]):
    asked = [words[1:] for line in LINES for words in commands(line) if words[0] == "redis-cli" and len(words) > 1]
    answered = [words for words in asked if words[0] not in ("SUBSCRIBE", "ACL")]

    with desk.client() as client:
        for words in answered:
            client.execute_command(*words)

    assert len(answered) >= 8
    job = make_queue("hello").claim(0)
    assert job
    assert (job.id, job.payload) == ("welcome-17", {"task": "greet", "args": ["Ada"]})
