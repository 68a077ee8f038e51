"""Every command explains itself, and shells can complete it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from schedq import Queue
from schedq.cli import cli
from schedq.cli.lazy_group import VARIABLE
from tests.cli.conftest import Run
from tests.cli.scenes import beat


def _parts(command: click.Command) -> dict[str, click.Command]:
    """The command, or those of a group, by what is typed."""
    name = str(command.name)
    return (
        {f"{name} {part.name}": part for part in command.commands.values()}
        if isinstance(command, click.Group)
        else {name: command}
    )


COMMANDS = tuple(cli.commands.values())
NAMES = [str(command.name) for command in COMMANDS]
PARTS = {words: part for command in COMMANDS for words, part in _parts(command).items()}
WITHOUT_REDIS = {"cron", "health", "server", "help", "completion", "demo"}
PRINTS_DATA = set(PARTS) - {
    "worker",
    "dev",
    "promoter",
    "exporter",
    "watch",
    "archive",
    "dashboard",
    "help",
    "completion",
    "demo",
    "export",
}  # which prints JSON anyway


def test_the_commands_are_those_of_the_design():
    design = (
        "worker promoter enqueue stats jobs job requeue cancel reschedule pause resume purge schedules cron server demo"
    )

    assert set(design.split()) <= set(NAMES)
    assert list(cli.commands) == NAMES


@pytest.mark.parametrize("name", PARTS)
def test_every_command_has_help_with_an_example(name: str, run: Run):
    said = run(*name.split(), "--help")

    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"Usage: schedq {name} ")
    assert "Example" in said.out.partition("Options:")[2]
    assert ("--redis URL" in said.out) == (name not in WITHOUT_REDIS)
    assert ("--json" in said.out) == (name in PRINTS_DATA)
    assert run(*name.split(), "-h") == said


@pytest.mark.parametrize("command", PARTS.values(), ids=list(PARTS))
def test_every_option_has_a_help_text(command: click.Command):
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    told = {option.name: option.help for option in options}

    assert not [name for name, text in told.items() if not text and name != "log_format"]


def test_the_examples_are_command_lines(run: Run):
    for command in (*COMMANDS, *PARTS.values()):
        for line in (command.epilog or "").splitlines():
            words = line.removeprefix("Example:").split()
            if words[:1] == ["schedq"]:
                assert {words[1], " ".join(words[1:3])} & set(PARTS), line


@pytest.mark.parametrize("name", [command.name for command in COMMANDS if isinstance(command, click.Group)])
def test_a_group_lists_its_commands_with_a_line_each(name: str, run: Run):
    said = run(name, "--help")

    assert (said.code, said.err) == (0, "")
    assert "Example" in said.out.partition("Options:")[2]
    for part in (words.removeprefix(f"{name} ") for words in PARTS if words.startswith(f"{name} ")):
        assert f"\n  {part} " in said.out


def test_all_commands_are_listed_with_a_line_each(run: Run):
    said = run()

    assert said.code == 2
    for name in NAMES:
        assert f"\n  {name} " in said.err


def test_the_list_of_commands_imports_none_of_them():
    program = (
        "import sys; from schedq.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print(sorted(name for name in sys.modules if name.startswith('schedq.cli.')))"
    )

    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "enqueue     Store jobs" in said.stdout
    assert said.stdout.splitlines()[-1] == "['schedq.cli.lazy_group']"


def test_the_garbage_collector_skips_what_a_command_imports_and_works_on():
    program = (
        "import gc, sys; from schedq.cli import main\n"
        "try: main(['stats', '--help'])\n"
        "finally: print(gc.isenabled(), gc.get_freeze_count() > 10 * len(gc.get_objects()))"
    )

    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert said.stdout.splitlines()[-1] == "True True"


def test_the_list_of_commands_has_headings_and_fits_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")

    lines = run("--help").lines

    headings = [line.removesuffix(":") for line in lines if re.fullmatch(r"[A-Z][a-z ]+:", line)]
    assert headings == ["Options", "Run", "Look", "Act", "Schedules and gates", "Serve", "Help"]
    assert max(map(len, lines)) <= 80
    assert "..." not in "".join(line for line in lines if not line.startswith("Usage:"))
    assert [line.split()[0] for line in lines if re.match(r"  [a-z]+ {2,}[A-Z]", line)] == NAMES


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_printed(option: str, run: Run):
    assert run(option).lines[0].startswith("schedq, version ")


# -- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str, run: Run):
    said = run("completion", shell)

    assert VARIABLE in said.out
    assert "schedq" in said.out


@pytest.fixture
def complete(monkeypatch: pytest.MonkeyPatch, run: Run) -> Callable[[str], set[str]]:
    """What a shell is offered at the end of a command line."""

    def complete(line: str) -> set[str]:
        words = line.split(" ")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        monkeypatch.setenv(VARIABLE, "bash_complete")
        said = run()
        monkeypatch.delenv(VARIABLE)
        assert said.err == ""
        return {offer.partition(",")[2] for offer in said.out.splitlines() if offer}

    return complete


def test_queues_states_and_shells_are_completed(
    complete: Callable[[str], set[str]], make_queue: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("schedq.cli.queues._COMPLETION_S", 60)
    for name in ("mail", "mail-bulk", "reports"):
        make_queue(name).enqueue(1)

    assert complete("schedq stats ") == {"mail", "mail-bulk", "reports"}
    assert complete("schedq pause mail") == {"mail", "mail-bulk"}
    assert complete("schedq job 1 --queue r") == {"reports"}
    assert complete("schedq jobs mail --state c") == {"completed", "cancelled"}
    assert complete("schedq completion z") == {"zsh"}
    assert complete("schedq re") == {"requeue", "reschedule", "result", "resume"}


def test_ids_and_names_are_completed(
    complete: Callable[[str], set[str]], make_queue: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("schedq.cli.queues._COMPLETION_S", 60)
    queue, other = make_queue("mail"), make_queue("reports")

    @queue.task
    def send(n: int) -> None: ...

    queue.enqueue({"task": "send"}, job_id="job-pending")
    other.enqueue(1, job_id="job-delayed", delay=60)
    beat(queue, "web-1", tasks='["send", "send_all"]')
    queue.schedules.upsert("nightly", cron="0 3 * * *", payload=1)
    queue.gates.set("api", concurrency=1)
    with queue.batch("etl", send) as batch:
        batch.add([])

    assert complete("schedq job job-") == {"job-pending", "job-delayed"}
    assert complete("schedq reschedule ") == {"job-delayed"}
    assert complete("schedq job --queue mail job-") == {"job-pending"}
    assert complete("schedq jobs mail --task s") == {"send", "send_all"}
    assert complete("schedq pause mail --task send_") == {"send_all"}
    assert complete("schedq workers --stop w") == {"web-1"}
    assert complete("schedq schedules pause n") == {"nightly"}
    assert complete("schedq gates show a") == {"api"}
    assert complete("schedq batches show e") == {"etl"}
    assert complete("schedq enqueue mail 1 --id ") == set()


@pytest.mark.parametrize("line", ["job ", "jobs mail --task ", "workers --stop ", "schedules show ", "gates show "])
def test_nothing_is_completed_and_said_without_redis(line: str, complete: Callable[[str], set[str]]):
    command, _, rest = line.partition(" ")

    if command in ("schedules", "gates"):
        assert complete(f"schedq {command} show --redis redis://127.0.0.1:1 ") == set()
    else:
        assert complete(f"schedq {command} --redis redis://127.0.0.1:1 {rest}") == set()


def test_with_a_redis_that_does_not_respond_nothing_is_completed(
    complete: Callable[[str], set[str]], monkeypatch: pytest.MonkeyPatch
):
    assert complete("schedq stats --redis redis://127.0.0.1:1 ") == set()
    assert complete("schedq stats --redis no-url ") == set()
