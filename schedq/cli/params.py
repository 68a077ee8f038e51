"""Parameter types, options that several commands share, and the confirmation before an irreversible action."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from functools import wraps
from typing import Any, Final, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from schedq.cli import offers, queues
from schedq.errors import UsageError
from schedq.inspect.search import Filter
from schedq.model import gates
from schedq.model.escaping import harmless
from schedq.model.gates import checked_gate_name
from schedq.model.keys import checked_id, checked_name
from schedq.model.payload import UnreadablePayload, decode
from schedq.model.times import instant_ms, parsed_duration
from schedq.model.unique import checked_key

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
Command = Callable[..., None]
UNDER_DEV: Final = "SCHEDQ_DEV"
"""Environment variable of the worker of `schedq dev`, whose dashboard shows the default Redis."""


class Checked(click.ParamType[T]):
    """A parameter type that parses with a function; the function's UsageError is reported as wrong usage."""

    def __init__(self, name: str, check: Callable[[str], T]) -> None:
        self.name = name
        self._check = check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        if not isinstance(value, str):  # a default value
            return cast(T, value)
        try:
            return self._check(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Offered(Checked[T]):
    """The same, with completion from a Redis that replies at once."""

    def __init__(self, name: str, check: Callable[[str], T], offer: offers.Offer) -> None:
        super().__init__(name, check)
        self._offer = offer

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        return offers.offered(ctx, incomplete, self._offer)


class _QueueName(Checked[str]):
    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        names = queues.names_at_once(ctx.params.get("redis_url"))
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _instant(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text).astimezone()  # without an offset: local time
        instant_ms(moment, "it")
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(
            f"{text!r} is not a valid time; write 2030-01-01T09:00 (local time) or 2030-01-01T09:00:00+01:00"
        ) from error
    return moment


def _durations(text: str) -> tuple[float, ...]:
    return tuple(parsed_duration(part).total_seconds() for part in text.split(","))


def _header(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark:
        raise UsageError(f"{text!r:.80} must be NAME=VALUE")
    return name, value


def _gate_key(text: str) -> str:
    if not text:
        raise UsageError("a key must not be empty")
    return gates.checked_key(text)


def json_of(kind: type, noun: str) -> Checked[Any]:
    """A parameter type for JSON text whose value has the Python type `kind`; errors call it `noun`."""

    def check(text: str) -> Any:
        found = from_json(text)
        if not isinstance(found, kind):
            raise UsageError(f"{text!r:.80} is not a {noun}")
        return found

    return Checked("json", check)


QUEUE_NAME: Final = _QueueName("name", checked_name)
JOB_ID: Final = Offered("id", checked_id, offers.jobs)
DURATION: Final = Checked("duration", parsed_duration)
DURATIONS: Final = Checked("durations", _durations)
INSTANT: Final = Checked("instant", _instant)
HEADER: Final = Checked("header", _header)
UNIQUE_KEY: Final = Checked("key", checked_key)
GATE_NAME: Final = Offered("gate", checked_gate_name, offers.gates)
GATE_KEY: Final = Checked("key", _gate_key)


def from_json(text: str) -> Any:
    """Decode JSON text.

    Raises:
        click.BadParameter: the text is not valid JSON.
    """
    try:
        return decode(text)
    except UnreadablePayload as error:
        hint = f"; a string needs quotes: '\"{text}\"'" if re.fullmatch(r"[\w .-]{1,40}", text) else ""
        raise click.BadParameter(f"{error} ({text.strip()!r:.80}){hint}") from error


redis_option: Final = click.option(
    "--redis",
    "redis_url",
    metavar="URL",
    help="URL of Redis; default: SCHEDQ_REDIS_URL, else REDIS_URL, else redis://localhost:6379/0.",
)
json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object, for programs; times are ms since the epoch."
)


def _queue_option(default: str) -> Callable[[Command], Command]:
    return click.option(
        "--queue",
        "queue_name",
        type=QUEUE_NAME,
        metavar="NAME",
        envvar="SCHEDQ_QUEUE",
        help=f"The queue; default: SCHEDQ_QUEUE, else {default}.",
    )


queue_option: Final = _queue_option("the only queue there is")
queue_of_id_option: Final = _queue_option("the one that has ID, else the only queue there is")
any_queue_option: Final = _queue_option("all queues")
yes_option: Final = click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask for confirmation.")
delay_option: Final = click.option(
    "--delay", type=DURATION, metavar="D", help="How long from now: 90 (seconds), 5m, 1d12h."
)
run_at_option: Final = click.option(
    "--run-at", type=INSTANT, metavar="TIME", help="When: 2030-01-01T09:00 (local time), or with an offset, …+01:00."
)
app_dir_option: Final = click.option(
    "--app-dir",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    show_default=True,
    help="The folder in which APP and --import are searched first.",
)
import_option: Final = click.option(
    "--import",
    "imports",
    metavar="MODULE",
    multiple=True,
    help="Import this module too, which defines tasks; of a package, all its modules. May be repeated.",
)


_UNITS: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d{1,12})([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise UsageError(f"{text!r} is no size; write a number of bytes, or one with K, M or G, such as 512M")
    return int(found[1]) * _UNITS[found[2].upper()]


MEMORY: Final = Checked("size", _size)
"""A number of bytes, also with K, M or G."""


def option_group(name: str, group: type, *options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Pass several options to a command as one argument `name`: the dataclass `group`, with a field per option.

    Fields without an option keep their defaults.
    """
    members = [field.name for field in fields(group)]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def grouped(**values: Any) -> None:
            values[name] = group(**{member: values.pop(member) for member in members if member in values})
            command(**values)

        made: Command = grouped
        for option in reversed(options):
            made = option(made)
        return made

    return decorate


_AGE: Final = "counted from enqueue, start or finish, depending on the state"


def _not_empty(text: str) -> str:
    if not text:
        raise UsageError("it must not be empty")
    return text


_TEXT: Final = Checked("text", _not_empty)
_TASK: Final = Offered("text", _not_empty, offers.tasks)
_GATE: Final = Offered("text", _not_empty, offers.gates)


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """The filter that a user gave: which jobs a command applies to."""

    task: str | None = None
    older_than: timedelta | None = None
    newer_than: timedelta | None = None
    text: str | None = None
    error: str | None = None
    unique: str | None = None
    gate: str | None = None
    key: str | None = None
    header: str | None = None

    def __bool__(self) -> bool:
        return bool(self.given())

    def given(self) -> dict[str, Any]:
        """The options that were given, as keyword arguments of `Inspector.find` and `act_on`."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def as_arguments(self) -> str:
        """The filter as command-line options, each with a leading space."""
        texts = {
            name.removesuffix("_than"): f"{value.total_seconds():g}" if isinstance(value, timedelta) else value
            for name, value in self.given().items()
        }
        return "".join(f" --{name} {shlex.quote(text)}" for name, text in texts.items())

    def in_words(self) -> str:
        """The filter in parentheses with a leading space, to follow a noun; '' without a filter."""
        words = Filter.of(**asdict(self)).says()
        return f" ({words})" if words else ""


task_option: Final = click.option("--task", type=_TASK, metavar="T", help="Only jobs that call this task.")
filter_options: Final = option_group(
    "filters",
    FilterOptions,
    task_option,
    click.option("--older", "older_than", type=DURATION, metavar="D", help=f"Only jobs at least this old ({_AGE})."),
    click.option("--newer", "newer_than", type=DURATION, metavar="D", help="Only jobs at most this old."),
    click.option(
        "--text", type=_TEXT, metavar="TEXT", help="Only jobs whose payload or last error contains this text."
    ),
    click.option("--error", type=_TEXT, metavar="TEXT", help="Only jobs whose last error contains this text."),
    click.option("--unique", type=_TEXT, metavar="KEY", help="Only jobs with this unique key."),
    click.option("--gate", type=_GATE, metavar="G", help="Only jobs of this gate."),
    click.option("--key", type=_TEXT, metavar="K", help="With --gate: only jobs with this key."),
    click.option(
        "--header",
        type=_TEXT,
        metavar="NAME=VALUE",
        help="Only jobs with this header; without =, with this text in the value of a header.",
    ),
)
"""`--task`, `--older`, `--newer`, `--text`, `--error`, `--unique`, `--gate`, `--key` and `--header`, as `filters`."""


def port_option(default: int, help_text: str) -> Callable[[F], F]:
    """`--port N`."""
    kind = click.IntRange(0, 65_535)
    return click.option("--port", type=kind, default=default, show_default=True, metavar="N", help=help_text)


def state_option(states: Sequence[str], help_text: str) -> Callable[[F], F]:
    """The option `--state`, which may be repeated."""
    return click.option("--state", "states", type=click.Choice(states), multiple=True, metavar="STATE", help=help_text)


def ask(question: str, *, is_sure: bool) -> None:
    """Ask the user to confirm an irreversible action.

    Raises:
        click.ClickException: the user declines, or there is no terminal.
    """
    if is_sure:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.ClickException("this needs confirmation, and there is no terminal: add --yes; nothing was done")
    if not click.confirm(harmless(question), err=True):
        raise click.ClickException("nothing was done")
