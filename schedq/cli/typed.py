"""What people type: queue names, ids, durations, instants, JSON; each is checked before anything is sent."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from schedq.cli import queues
from schedq.errors import UsageError
from schedq.instants import duration_ms, instant_ms
from schedq.keys import checked_id, checked_name
from schedq.payload import UnreadablePayload, decode

_UNIT_S: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|m|h|d|w)")
_PARTS: Final = re.compile(rf"(?:{_PART.pattern})+")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")


class _QueueName(click.ParamType[str]):
    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return checked_name(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        names = queues.names_at_once(ctx.params.get("redis_url"))
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


class _JobId(click.ParamType[str]):
    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return checked_id(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class _Duration(click.ParamType[timedelta]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        if _NUMBER.fullmatch(value):
            seconds = float(value)
        elif _PARTS.fullmatch(value):
            seconds = sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(value))
        else:
            self.fail(f"{value!r} is no duration; write 90 (seconds), 5m, 1d12h or 500ms", param, ctx)
        try:
            return timedelta(milliseconds=duration_ms(seconds, "it"))
        except UsageError as error:
            self.fail(str(error), param, ctx)


class _Instant(click.ParamType[datetime]):
    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            moment = datetime.fromisoformat(value).astimezone()  # without an offset: local time
            instant_ms(moment, "it")
        except (ValueError, OverflowError, OSError):
            self.fail(
                f"{value!r} is no time; write 2030-01-01T09:00 (local time) or 2030-01-01T09:00:00+01:00", param, ctx
            )
        return moment


class _Durations(click.ParamType[tuple[float, ...]]):
    name = "durations"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(DURATION.convert(part, param, ctx).total_seconds() for part in value.split(","))


class Json(click.ParamType[Any]):
    """JSON text, decoded; of one Python type if that is given."""

    name = "json"

    def __init__(self, kind: type = object, noun: str = "JSON") -> None:
        self._kind = kind
        self._noun = noun

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value that the text holds."""
        if not isinstance(value, str):
            return value
        found = from_json(value)
        if not isinstance(found, self._kind):
            self.fail(f"{value!r:.80} is no {self._noun}", param, ctx)
        return found


def from_json(text: str) -> Any:
    """The value that JSON text holds.

    Raises:
        click.BadParameter: it is no JSON.
    """
    try:
        return decode(text)
    except UnreadablePayload as error:
        hint = f"; a text needs quotes: '\"{text}\"'" if re.fullmatch(r"[\w .-]{1,40}", text) else ""
        raise click.BadParameter(f"{error} ({text.strip()!r:.80}){hint}") from error


QUEUE_NAME: Final = _QueueName()
JOB_ID: Final = _JobId()
DURATION: Final = _Duration()
DURATIONS: Final = _Durations()
INSTANT: Final = _Instant()
