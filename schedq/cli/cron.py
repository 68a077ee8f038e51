"""`schedq cron`: a cron expression in words, and the slots that it means. Nothing is stored, no Redis asked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Final, get_args
from zoneinfo import ZoneInfo, available_timezones

import click
from click.shell_completion import CompletionItem

from schedq.cli import show
from schedq.crontab import Crontab, Fold, Gap, parse
from schedq.errors import UsageError
from schedq.instants import instant_ms

_MARKS: Final = {
    "": "",
    "gap": "gap: for a time that clocks leave out",
    "first": "fold: the first of two",
    "second": "fold: the second of two",
}


def _zones(
    ctx: click.Context,  # noqa: ARG001 - click's signature
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem]:
    return [CompletionItem(name) for name in sorted(available_timezones()) if name.startswith(incomplete)]


@click.command(
    short_help="Explain a cron expression and show its next slots.",
    epilog="""\b
Examples:
  schedq cron '30 2 * * MON-FRI' --tz Europe/Berlin
  schedq cron '*/15 9-17 * * *' --tz America/New_York --from 2027-03-13 -n 20
  schedq cron 'H H(0-5) * * *' --id nightly-report --json""",
    no_args_is_help=True,
)
@click.argument("expression")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", shell_complete=_zones, help="The time zone.")
@click.option(
    "-n", "number", type=click.IntRange(1, 10_000), default=10, show_default=True, help="How many slots to show."
)
@click.option(
    "--from", "start", metavar="INSTANT", help="Those after it: 2027-03-28T01:30 (in ZONE) or with an offset; else now."
)
@click.option("--id", "schedule_id", default="", metavar="ID", help="The schedule's id, from which H is drawn.")
@click.option(
    "--gap",
    type=click.Choice(get_args(Gap)),
    default="next",
    show_default=True,
    help="Of times that clocks leave out: one slot at the next minute there is, or skip them.",
)
@click.option(
    "--fold",
    type=click.Choice(get_args(Fold)),
    default="first",
    show_default=True,
    help="Of times that come twice: which of them is a slot.",
)
@click.option("--json", "as_json", is_flag=True, help='A JSON list of {"utc": ..., "local": ...}, for programs.')
def cron(
    expression: str,
    tz: str,
    number: int,
    start: str | None,
    schedule_id: str,
    gap: Gap,
    fold: Fold,
    as_json: bool,  # noqa: FBT001 - click passes flags by name
) -> None:
    """Say in words what a cron EXPRESSION means, and show its next slots. Needs no Redis.

    Five fields (minute, hour, day of month, month, day of week), or six with seconds first, or @daily and the like;
    names, ranges, steps, lists, L (last), # (nth weekday), H (drawn from the id). Day of month and day of week both
    given: either matches. Quote it, or the shell puts file names for its stars.
    """
    try:
        crontab = parse(expression, tz=tz, schedule_id=schedule_id, gap=gap, fold=fold)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    zone = ZoneInfo(tz)
    slots = list(islice(_after(crontab, _instant(start, zone)), number))
    if as_json:
        show.out_json([{"utc": at.isoformat(), "local": at.astimezone(zone).isoformat()} for at in map(_moment, slots)])
        return
    show.line(crontab.words())
    show.line(crontab.words_on_changes())
    click.echo()
    if slots:
        show.out(
            show.table(("LOCAL", "OFFSET", "UTC", ""), [_row(crontab, slot, zone) for slot in slots], times=(1, 2))
        )
    if len(slots) < number:
        show.line("There are no more slots within a hundred years.")


def _instant(text: str | None, zone: ZoneInfo) -> int:
    """What `--from` says, or now; ms."""
    if text is None:
        return instant_ms(datetime.now(UTC), "now")
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return instant_ms(moment, "it")
    except (ValueError, OverflowError) as error:
        ways = f"write 2027-03-28T01:30 (in {zone.key}) or 2027-03-28T01:30:00+01:00"
        raise click.BadParameter(f"{text!r:.60} is no time; {ways}", param_hint="--from") from error


def _after(crontab: Crontab, instant: int) -> Iterator[int]:
    slot = crontab.next_after(instant)
    while slot is not None:
        yield slot
        slot = crontab.next_after(slot)


def _moment(slot_ms: int) -> datetime:
    return datetime.fromtimestamp(slot_ms // 1000, UTC)


def _row(crontab: Crontab, slot: int, zone: ZoneInfo) -> tuple[str, str, str, str]:
    at = _moment(slot)
    local = at.astimezone(zone)
    offset = local.isoformat()[19:]
    return f"{local:%a %Y-%m-%d %H:%M:%S}", offset, f"{at:%Y-%m-%d %H:%M:%S}", _MARKS[crontab.mark(slot)]
