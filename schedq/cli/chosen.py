"""Jobs chosen by a filter instead of by id: the options, the question, the bar, and what came of it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

import click

from schedq.cli import show
from schedq.cli.options import ask
from schedq.cli.queues import warn_if_no_task
from schedq.cli.typed import DURATION
from schedq.operations.acting import Acted
from schedq.operations.filters import Filter
from schedq.queue import Queue

F = TypeVar("F", bound=Callable[..., Any])
AGE: Final = "since it was enqueued, began to run, or ended, as fits its state"


class _Text(click.ParamType[str]):
    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("it must not be empty", param, ctx)
        return str(value)


TEXT: Final = _Text()


def filter_options(function: F) -> F:
    """`--task`, `--older`, `--newer`, `--text` and `--error`."""
    for option in (
        click.option("--error", type=TEXT, metavar="TEXT", help="Only jobs whose last error has this text."),
        click.option("--text", type=TEXT, metavar="TEXT", help="Only jobs whose payload or last error has this text."),
        click.option("--newer", type=DURATION, metavar="D", help="Only jobs that are at most so old."),
        click.option("--older", type=DURATION, metavar="D", help=f"Only jobs that are at least so old, {AGE}."),
        click.option("--task", type=TEXT, metavar="T", help="Only jobs that call this task."),
    ):
        function = option(function)
    return function


def state_option(states: Sequence[str], help_text: str) -> Callable[[F], F]:
    """`--state`, which may be given again."""
    return click.option("--state", "states", type=click.Choice(states), multiple=True, metavar="STATE", help=help_text)


def dry_run_option(function: F) -> F:
    """`--dry-run`."""
    return click.option("--dry-run", "is_dry", is_flag=True, help="Only count the jobs that are meant.")(function)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which jobs are meant, as people say it."""

    task: str | None = None
    older: timedelta | None = None
    newer: timedelta | None = None
    text: str | None = None
    error: str | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in (self.task, self.older, self.newer, self.text, self.error))

    def options(self) -> dict[str, Any]:
        """As `Inspector.find` and `act_on` take it."""
        return {
            "task": self.task,
            "older_than": self.older,
            "newer_than": self.newer,
            "text": self.text,
            "error": self.error,
        }

    def typed(self) -> str:
        """As options of a command line, each after a blank."""
        ages = [
            (name, f"{age.total_seconds():g}") for name, age in (("older", self.older), ("newer", self.newer)) if age
        ]
        texts = [("task", self.task), ("text", self.text), ("error", self.error)]
        given = [(name, value) for name, value in (*texts, *ages) if value is not None]
        return "".join(f" --{name} {shlex.quote(value)}" for name, value in given)

    def says(self) -> str:
        """In brackets, to follow a noun; '' for no filter."""
        said = Filter.of(self.task, self.older, self.newer, self.text, self.error).says()
        return f" ({said})" if said else ""


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error while something lasts, if that is a terminal; it is told how far it is, of how much."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=max(1, total))
        yield lambda done, of: progress.update(task, completed=done, total=max(1, of, done))


def _depth(queue: Queue, states: Sequence[str]) -> int:
    """How many jobs are in these states."""
    found = cast("dict[str, int]", queue.stats())
    return sum(found[f"{state}_depth"] for state in states)


def act_on_chosen(
    queue: Queue,
    action: str,
    states: Sequence[str],
    chosen: Chosen,
    *,
    words: tuple[str, str],
    is_sure: bool,
    is_dry: bool,
    as_json: bool,
    known_as: str = "",
    **when: Any,
) -> None:
    """Count the jobs that are meant, ask, do it, and say what came of it.

    Args:
        queue: where they are.
        action: as `Inspector.act_on` has it.
        states: whose jobs.
        chosen: which of them.
        words: what is to be done, and what was done: ("Requeue", "requeued").
        is_sure: do not ask.
        is_dry: only count.
        as_json: for programs.
        known_as: a second name for the count of what was done, in JSON.
        when: delay or run_at, for reschedule.
    """
    wish, past = words
    there = Acted()
    if is_dry or not is_sure:
        there = _go_through(queue, action, states, chosen, f"{wish}: counting", dry_run=True, **when)
        if there.matched and not is_dry:
            ask(
                f"{wish} {_count(there.matched, states)}{chosen.says()} of queue {queue.name}"
                f" at {queue.address.label}?",
                is_sure=False,
            )
    acted = there
    if not is_dry and (is_sure or there.matched):
        acted = _go_through(queue, action, states, chosen, wish, dry_run=False, **when)
    if chosen.task is not None and not acted.matched:
        warn_if_no_task(queue, [chosen.task])
    if as_json:
        said: dict[str, Any] = {"queue": queue.name, "action": action, "states": list(states), "dry_run": is_dry}
        show.out_json(said | ({known_as: acted.done} if known_as else {}) | asdict(acted))
    elif is_dry:
        show.line(
            f"queue {queue.name}: {_count(acted.matched, states)} of {acted.looked:,} would be {past}{chosen.says()}"
        )
    else:
        moved_on = f"; {acted.refused:,} had moved on" if acted.refused else ""
        show.line(f"queue {queue.name}: {show.count(acted.done, 'job')} {past}{moved_on}")


def _count(number: int, states: Sequence[str]) -> str:
    return show.count(number, f"{'/'.join(states)} job")


def _go_through(
    queue: Queue, action: str, states: Sequence[str], chosen: Chosen, what: str, *, dry_run: bool, **when: Any
) -> Acted:
    total = Acted()
    size = _depth(queue, states)
    with bar(what, size) as moved:
        for state in states:
            before = total

            def progress(acted: Acted, before: Acted = before) -> None:
                moved(before.looked + acted.looked, size)

            acted = queue.inspector.act_on(
                action, state, **chosen.options(), dry_run=dry_run, progress=progress, **when
            )
            total = Acted(
                before.looked + acted.looked,
                before.matched + acted.matched,
                before.done + acted.done,
                before.refused + acted.refused,
            )
    return total
