"""Every command in the handbook's shell blocks is valid, and those that end by themselves do what they say."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Iterable
from typing import Any

import click
import pytest

from schedq import Discard, Queue
from schedq.cli import cli
from schedq.cli.params import FilterOptions
from schedq.model.runs import beginning
from schedq.transitions.run import add_undo
from scripts.tools.handbook import all_blocks
from tests.cli.conftest import Run
from tests.pages import PAGES, ROOT
from tests.servers import Server

BLOCKS = [(name, block) for name, text in PAGES.items() for block in all_blocks(text) if block.language == "sh"]
LINES = [line for _, block in BLOCKS for line in block.code.splitlines() if not line.startswith("#")]
TRIED = {
    line
    for name, block in BLOCKS
    if not block.is_fragment or name.endswith("/cli.md")
    for line in block.code.splitlines()
}
"""What is run here as well: all but fragments, and of these the list of all commands."""
ENDLESS = {"worker", "top", "dashboard", "tail", "promoter", "exporter", "health", "server", "watch", "archive"}
"""Commands that serve until they are asked to stop, or that need a running server."""
ASIDE = {
    "django-admin",
    "pip",
    "python",
    "python3",
    ".",
    "cd",
    "curl",
    "mkdir",
    "touch",
    "uvicorn",
    "flask",
    "pytest",
    "export",
    "watchfiles",
    "scripts/demo",
    "scripts/test",
    "scripts/check",
    ".ci/run",
    "redis-cli",
    "jq",
    "sort",
}
"""What else the blocks call; each has a test of its own, here or with the examples."""
OF_ADMINISTRATORS = {"systemd-analyze", "systemctl", "journalctl", "honcho", "docker", "openssl"}
"""What the pages about deployment call. The files that they use have tests in tests/stories/deployment."""
STATE = {"requeue": "failed", "undo": "failed", "reschedule": "delayed", "result": "completed"}


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


def of_schedq(lines: Iterable[str]) -> list[list[str]]:
    """The arguments of every call of schedq."""
    return [
        words[1:] for line in lines for words in commands(line) if words[0] == "schedq" and words[1:2] != ["--version"]
    ]


def test_the_blocks_call_schedq_and_little_else():
    called = {words[0] for line in LINES for words in commands(line)}

    assert called - {"schedq", "eval"} <= ASIDE | OF_ADMINISTRATORS


@pytest.mark.parametrize("arguments", of_schedq(LINES), ids=" ".join)
def test_every_command_is_there_with_its_options(arguments: list[str]):
    group: Any = cli
    context = click.Context(group, info_name="schedq", **group.context_settings)
    words = list(arguments)
    while isinstance(group, click.Group) and words:
        _, command, words = group.resolve_command(context, words)
        assert command is not None
        context, group = click.Context(command, parent=context, info_name=words[0] if words else ""), command
        if not isinstance(command, click.Group):
            chosen = command.make_context("schedq", words, parent=context).params
            by_filter = any(chosen.get(name) for name in ("states", *FilterOptions.__annotations__))
            assert not (chosen.get("job_ids") and by_filter), "jobs are chosen by ids or by a filter, not by both"


def test_every_command_that_the_text_names_exists():
    texts = (re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL) for text in PAGES.values())
    named = {name for text in texts for name in re.findall(r"`schedq ([a-z]+)", text)}

    assert {"why", "worker"} <= named <= set(cli.commands)


@pytest.mark.parametrize(
    "arguments",
    [
        words
        for words in of_schedq(sorted(TRIED))
        if words[0] not in ENDLESS and not {"app:queue", "hello"} & set(words)
    ],
    ids=" ".join,
)
def test_commands_that_end_by_themselves_succeed(arguments: list[str], run: Run, queue: Queue):
    """ID is the id of a job, and mail the only queue. What is asked of hello is asked by scripts.tools.pages."""
    state = STATE.get(arguments[0], "pending")
    queue.enqueue({"task": "send"}, job_id="ID", delay=60 if state == "delayed" else None)
    queue.enqueue({"task": "send"}, unique="nightly", delay=60)
    if arguments[0] == "send":
        queue.enqueue({"task": "send"}, job_id=arguments[1])
    queue.schedules.upsert("nightly", cron="0 3 * * *", task="send")
    if state in ("failed", "completed"):
        job = queue.claim(0)
        assert job
        if arguments[0] == "undo":
            job.run = beginning(1, job.claimed_at_ms, None)
            queue._ask(add_undo(queue.settings, job, "charge", '[{"task":"send"},null,null,null]'))
        _ = queue.fail(job, Discard("no")) if state == "failed" else queue.complete(job)
    asks = {"purge", "delete"} & {*arguments} or ("requeue" in arguments and "--dry-run" not in arguments)

    said = run(*arguments, *(["--yes"] if asks else []))

    assert "Traceback" not in said.err
    assert said.code == 0 or (arguments[0] == "doctor" and said.code == 1), said.err


def test_extras_that_are_installed_exist():
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = {name for line in LINES if line.startswith("pip") for name in re.findall(r"\[(\w+)\]", line)}

    assert named
    assert named <= extras


def test_redis_commands_are_understood_and_create_a_job(desk: Server, make_queue: Callable[..., Queue]):
    asked = [words[1:] for line in LINES for words in commands(line) if words[0] == "redis-cli" and len(words) > 1]
    answered = [words for words in asked if words[0] not in ("SUBSCRIBE", "ACL")]

    with desk.client() as client:
        for words in answered:
            client.execute_command(*words)

    assert len(answered) >= 8
    job = make_queue("hello").claim(0)
    assert job
    assert (job.id, job.payload) == ("welcome-17", {"task": "greet", "args": ["Ada"]})
