"""`schedq help`: the handbook's pages in the terminal."""

from __future__ import annotations

import re
from difflib import get_close_matches
from itertools import groupby

import click
from click.shell_completion import CompletionItem
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Markdown
from rich.syntax import Syntax
from rich.table import Table

from schedq import handbook
from schedq.cli import output

_HEADING = 10
"""A word in a heading counts as much as this many more in the text."""


def _complete(
    ctx: click.Context,  # noqa: ARG001 - click's signature
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem]:
    found = (topic for topic in handbook.topics() if topic.name.startswith(incomplete))
    return [CompletionItem(topic.name, help=topic.title) for topic in found]


class _CopyableCode(CodeBlock):
    """A code block as it is in the page: no indent and no line breaks of ours, so that a copy of it runs."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = Syntax("", self.lexer_name, theme=self.theme, background_color="default").highlight(str(self.text))
        code.no_wrap, code.overflow = True, "ignore"
        yield code


class _Page(Markdown):
    elements = {**Markdown.elements, "fence": _CopyableCode, "code_block": _CopyableCode}  # noqa: RUF012 - rich's


@click.command(
    "help",
    epilog="""\b
Examples:
  schedq help
  schedq help guarantees
  schedq help troubleshooting | less""",
)
@click.argument("topic", required=False, shell_complete=_complete)
@click.pass_context
def show_page(context: click.Context, topic: str | None) -> None:
    """Show a page of the handbook; without TOPIC, list the pages.

    For the options of a command, see schedq COMMAND --help.
    """
    if topic is None:
        output.show(_contents())
    elif topic in {page.name for page in handbook.topics()}:
        output.show_pages(_Page(_for_terminal(handbook.read(topic)), hyperlinks=False))
    else:
        raise click.UsageError(_unknown(topic, context.find_root().command), context)


def _contents() -> Table:
    contents = Table.grid("", "", padding=(0, 3))
    for section, pages in groupby(handbook.topics(), lambda page: page.section):
        contents.add_row(f"\n{section}", style="bold")
        for page in pages:
            contents.add_row(f"  {page.name}", page.summary.replace("`", ""))
    return contents


def _for_terminal(text: str) -> str:
    """The page with links to other pages replaced by the commands that show them, and links within it by their text.

    A line separates two blocks of code that have no text between them.
    """
    text = re.sub(r"(?m)^```\n\n(?=```)", "```\n\n---\n\n", text)
    text = re.sub(r"\[([^\]]+)\]\(#[\w-]+\)", r"\1", text)
    return re.sub(r"\[([^\]]+)\]\(([\w-]+)\.md(?:#[\w-]+)?\)", r"\1 (`schedq help \2`)", text)


def _unknown(topic: str, root: click.Command) -> str:
    names = [page.name for page in handbook.topics()]
    named, mentions = [name for name in names if topic in name], _most_mentions(topic, names)
    if isinstance(root, click.Group) and topic in root.commands:
        command, found = f" schedq {topic} --help explains the command;", named or mentions
    else:
        command, found = "", named or get_close_matches(topic, names, n=3) or mentions
    hint = f"did you mean {', '.join(found)}?" if found else "schedq help lists all"
    return f"no page is called {topic!r};{command} {hint}"


def _most_mentions(word: str, names: list[str]) -> list[str]:
    """The pages that have the word most often, above all in headings; pages for other libraries come last."""
    mentions = {}
    for name in names:
        text = handbook.read(name).lower()
        headings = "".join(re.findall(r"(?m)^#+ .*", text))
        mentions[name] = text.count(word.lower()) + _HEADING * headings.count(word.lower())
    aside = {name: name.startswith("from-") or name == "reference" for name in names}
    return sorted(filter(mentions.get, names), key=lambda name: (aside[name], -mentions[name]))[:5]
