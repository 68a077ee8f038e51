"""`schedq doctor`: diagnoses a Redis server and its queues, and prints access rules for its users."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

import click
from rich.table import Table
from rich.text import Text

from schedq.cli import output
from schedq.cli.params import QUEUE_NAME, json_option, redis_option
from schedq.cli.queues import must_be_known, open_queue, wrong_usage
from schedq.connection.address import Address
from schedq.doctor.checks import LEVELS, Finding
from schedq.doctor.examination import SAMPLE, Report, examine
from schedq.doctor.roles import EVERY_QUEUE, ROLES, setuser
from schedq.errors import SchedqError
from schedq.inspect import display
from schedq.model import escaping
from schedq.model.keys import checked_name

_MASK = "ǃ"
"""One column wide, printable, and not used in texts."""
_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


@click.command(
    epilog="""\b
Examples:
  schedq doctor
  schedq doctor emails --json
  schedq doctor --ignore snapshots-only --ignore paused-long
  schedq doctor --acl --role worker --queue emails | redis-cli""",
)
@click.argument("names", nargs=-1, type=QUEUE_NAME, metavar="[NAME]...")
@click.option(
    "--sample",
    type=click.IntRange(100, 1_000_000),
    default=SAMPLE,
    show_default=True,
    metavar="N",
    help="How many entries to read of each list of a queue; ten times as many keys are scanned.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="CODE",
    help="Show findings with this code, but do not count them in the exit code; repeatable.",
)
@click.option("--acl", is_flag=True, help="Print ACL SETUSER lines for the three roles instead; needs no server.")
@click.option("--role", type=click.Choice(list(ROLES)), help="With --acl: this role only.")
@click.option(
    "--queue",
    "queue_name",
    metavar="NAME|*",
    default=EVERY_QUEUE,
    show_default=True,
    help="The queue, another way to give NAME; with --acl, the queue that the user may use.",
)
@click.option("--user", metavar="NAME", help="With --acl and --role: the user's name.")
@redis_option
@json_option
def doctor(
    names: tuple[str, ...],
    sample: int,
    ignored: tuple[str, ...],
    acl: bool,
    role: str | None,
    queue_name: str,
    user: str | None,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Examine the Redis server and the queues NAME, or all queues, without changing anything.

    Each finding has a level, a meaning and a remedy. Levels: error: jobs are or will be lost or stuck; warning: act
    before that happens; note: good to know. Exit code 0: nothing to act on; 1: there are errors or warnings.
    """
    if acl:
        _print_roles(names, role, queue_name, user, redis_url, as_json=as_json)
        return
    if role or user:
        raise click.UsageError("--role and --user go with --acl")
    if queue_name != EVERY_QUEUE:
        with wrong_usage():
            names = (*names, checked_name(queue_name))
    for name in names:
        with suppress(SchedqError), open_queue(name, redis_url) as queue:  # the examination reports what Redis refuses
            must_be_known(queue, redis_url)
    with wrong_usage(), output.progress_bar("examining queues", 1, after_s=output.QUICK_S) as moved:
        report = examine(redis_url, names, sample=sample, moved=moved)
    wanting = report.wanting(ignored)
    if as_json:
        output.show_json(report.to_dict(ignored))
    else:
        _show(report, ignored)
    if wanting:
        raise click.exceptions.Exit(1)


def _show(report: Report, ignored: tuple[str, ...]) -> None:
    about = " ".join(str(report.server.get(name, "")) for name in ("server", "version")).strip()
    output.show(output.heading(f"{report.redis}{about and f', {about}'}; {display.count(len(report.queues), 'queue')}"))
    width = output.width()
    for finding in report.findings:
        click.echo(_text(finding, width, is_ignored=finding.code in ignored), nl=False, color=True)
    if report.limits:
        output.show("", *(Text(escaping.harmless(words)) for words in report.limits))
    counts = [
        display.count(count, level)
        for level in LEVELS
        if (count := sum(finding.level == level and finding.code not in ignored for finding in report.findings))
    ]
    accepted = sum(finding.code in ignored for finding in report.findings)
    output.show("", ", ".join([*(counts or ["nothing to act on"]), *([f"{accepted} ignored"] if accepted else [])]))


def _text(finding: Finding, width: int, *, is_ignored: bool) -> str:
    """The entry, preceded by an empty line.

    Many queues may have the same finding. Entries that differ only in a name of the same length are rendered once,
    with a mask for the name, because rich needs milliseconds for each.
    """
    mask = _MASK * len(finding.queue)
    if mask:
        masked = {name: getattr(finding, name).replace(finding.queue, mask) for name in ("says", "means", "remedy")}
        found = _rendered(replace(finding, queue=mask, value=None, **masked), width, is_ignored=is_ignored)
        if found.count(mask) * len(mask) == found.count(_MASK):  # no name was folded
            return found.replace(mask, finding.queue)
    return output.rendered("", _entry(finding, is_ignored=is_ignored))


@lru_cache(maxsize=256)
def _rendered(finding: Finding, width: int, *, is_ignored: bool) -> str:  # noqa: ARG001 - the result depends on it
    return output.rendered("", _entry(finding, is_ignored=is_ignored))


def _entry(finding: Finding, *, is_ignored: bool) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    where = f"queue {finding.queue}: " if finding.queue else ""
    level = "ignored" if is_ignored else finding.level
    grid.add_row(
        Text(level, _STYLES.get(level, "dim")), Text(escaping.harmless(f"{where}{finding.says} [{finding.code}]"))
    )
    if finding.examples:
        grid.add_row("", Text(escaping.harmless(", ".join(finding.examples)), "dim"))
    grid.add_row("", Text(escaping.harmless(finding.means)))
    grid.add_row("", Text(escaping.harmless(f"→ {finding.remedy}")))
    return grid


def _print_roles(
    names: tuple[str, ...], role: str | None, queue: str, user: str | None, redis_url: str | None, *, as_json: bool
) -> None:
    if names and (len(names) > 1 or queue not in (EVERY_QUEUE, names[0])):
        raise click.UsageError("with --acl, name one queue")
    queue = names[0] if names else queue
    if user and not role:
        raise click.UsageError("--user names one user: add its role with --role")
    with wrong_usage():
        if queue != EVERY_QUEUE:
            checked_name(queue)
        if user is not None and (not user.isprintable() or not user or " " in user):
            raise click.UsageError(f"{user!r} is not a valid user name")
        tagged = Address(redis_url).is_cluster
    wanted = [ROLES[role]] if role else list(ROLES.values())
    lines = [setuser(one, queue, user=user, tagged=tagged) for one in wanted]
    if as_json:
        found = [
            {"role": one.name, "what": one.what, "user": line.split()[2], "queue": queue, "line": line}
            | {"commands": list(one.commands(queue))}
            for one, line in zip(wanted, lines, strict=True)
        ]
        output.show_json({"roles": found})
        return
    for line in lines:
        output.line(line)
    names_of = ", ".join(line.split()[2] for line in lines)
    output.warn(
        f"run these with redis-cli on each server, then set passwords: ACL SETUSER NAME >PASSWORD, for {names_of}"
    )
