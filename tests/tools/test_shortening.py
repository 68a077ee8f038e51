"""Files of a wheel are shorter than those of the repository, and users see no difference."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

import click
import pytest
from markdown_it import MarkdownIt

from schedq.cli import cli
from schedq.handbook import FOLDER
from scripts.tools import package, shortening
from scripts.tools.handbook import all_blocks
from scripts.tools.shortening import Public


def test_the_help_of_every_command_stays() -> None:
    files = sorted(
        name for name in package.tracked("schedq") if name.endswith(".py") and ("/cli/" in name or "/commands/" in name)
    )
    short = [shortening.shortened(name, (package.ROOT / name).read_text(), Public.of("")) for name in files]
    kept = {inspect.cleandoc(text) for each in short for text in _texts(each)}

    commands = list(_commands(cli))

    assert len(commands) > 60
    assert [command.name for command in commands if inspect.cleandoc(command.help or "") not in kept] == []
    assert "Run the tasks of the queues NAME of TASKS" in "".join(kept)  # of Django's `manage.py schedq_worker`


def test_docstrings_of_functions_that_are_no_commands_go() -> None:
    found = shortening.shortened("schedq/cli/jobs.py", COMMANDS, Public.of(""))

    assert [name for name, _ in _docstrings(found)] == ["jobs", "retry"]


COMMANDS = '''"""Commands."""


@click.command()
@json_option
def jobs():
    """Show jobs."""


def retry():
    """Retry jobs."""


retry_command = click.Command("retry", help=retry.__doc__)


@contextlib.contextmanager
def _rows():
    """Rows."""
    yield 1


class Table:
    """A table."""

    @property
    def width(self):
        """Characters."""
        return 1
'''


def test_pages_of_a_wheel_have_a_line_for_each_paragraph_and_look_the_same() -> None:
    texts = {path.name: path.read_text() for path in FOLDER.glob("*.md")}

    folder = f"{package._ABROAD}schedq/handbook/"  # pages for developers are there
    short = {name: package._shortened(name, text.encode()).replace(folder, "") for name, text in texts.items()}

    assert short["jobs.md"].count("\n") < texts["jobs.md"].count("\n")
    assert [name for name in texts if all_blocks(short[name]) != all_blocks(texts[name])] == []
    assert [name for name in texts if _html(short[name]).split() != _html(texts[name]).split()] == []


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("One\ntwo\n", "One two\n"),
        ("- One\n  two\n- three\n", "- One two\n- three\n"),
        ("One  \ntwo\n", "One  \ntwo\n"),
        ("```\none\ntwo\n```\n", "```\none\ntwo\n```\n"),
        ("<!-- a -->\nOne\n", "<!-- a -->\nOne\n"),
        ("| a |\n| --- |\n| b |\n", "| a |\n| --- |\n| b |\n"),
        ("> One\n> two\n", "> One\n> two\n"),
    ],
)
def test_line_breaks_that_readers_see_stay(text: str, short: str) -> None:
    assert shortening.without_line_breaks(text) == short


def _html(page: str) -> str:
    return str(MarkdownIt("commonmark").enable("table").render(page))


def _commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from _commands(each)


def _texts(text: str) -> Iterator[str]:
    return (
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _docstrings(text: str) -> list[tuple[str, str]]:
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [(node.name, found) for node in nodes if (found := ast.get_docstring(node))]
