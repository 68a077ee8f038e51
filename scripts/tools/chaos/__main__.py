"""Chaos: `python -m scripts.tools.chaos`, or scripts/chaos. The exit code is 1 if a promise was broken."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from scripts.tools.chaos import cluster, isolated, limits, outbox, report, workflows
from scripts.tools.chaos.faketime import MissingError, library, preloaded
from scripts.tools.chaos.faults import INTERVALS_S, SCENES
from scripts.tools.chaos.run import Options, failed, run
from tests.servers import announced

MOST_SHOWN = 20


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(5), default=60.0, show_default=True, help="How long faults are injected."
)
@click.option("--seed", default=1, show_default=True, help="Seed for the choice of faults, times and targets.")
@click.option("--rate", type=click.FloatRange(1), default=260.0, show_default=True, help="Jobs per second.")
@click.option(
    "--also",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Another checkout; every second worker runs its schedq.",
)
@click.option(
    "--leave-out",
    multiple=True,
    type=click.Choice([*INTERVALS_S, *SCENES]),
    help="A fault to leave out; may be repeated.",
)
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), help="Also write the result to this file.")
@click.option("--keep", is_flag=True, help="Keep the folder with the processes' records and logs.")
@click.option(
    "--isolated",
    "is_isolated",
    is_flag=True,
    help="Instead: child processes that crash, exit, loop or use too much memory, among good jobs; all are killed too.",
)
@click.option(
    "--outbox",
    "orders",
    type=click.IntRange(1),
    metavar="ORDERS",
    help="Instead: an outbox in PostgreSQL; applications, relays and it are killed until there are so many orders.",
)
@click.option(
    "--limits",
    "has_limits",
    is_flag=True,
    help="Instead: jobs in gates of all kinds, whose limits change meanwhile; judged by what handlers recorded.",
)
@click.option(
    "--workflows",
    "has_workflows",
    is_flag=True,
    help="Instead: workflows, batches and chains of all kinds; judged by what handlers recorded.",
)
@click.option(
    "--cluster",
    "is_cluster",
    is_flag=True,
    help="Instead: a cluster of four primaries with replicas, whose nodes die, stop and hand over, while slots move.",
)
@click.option(
    "--handbook", "for_handbook", is_flag=True, help="Write the handbook's table from the recorded soak; runs nothing."
)
def main(
    *,
    seconds: float,
    seed: int,
    rate: float,
    also: Path | None,
    leave_out: tuple[str, ...],
    record: Path | None,
    keep: bool,
    is_isolated: bool,
    orders: int | None,
    has_limits: bool,
    has_workflows: bool,
    is_cluster: bool,
    for_handbook: bool,
) -> None:
    """Kill, freeze and disconnect real processes; check that no job is lost or repeated without reason."""
    if for_handbook:
        report.BLOCK.write(report.text(report.recorded()))
        return
    print(f"seed {seed}", file=sys.stderr, flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the processes are stopped, too
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore SIGINT by default
    if is_isolated:
        _end(*isolated.run(seconds, seed, min(rate, isolated.MOST_RATE)))
    if orders:
        _end(*outbox.run(orders, seed))
    for is_chosen, mode in ((has_limits, limits), (has_workflows, workflows), (is_cluster, cluster)):
        if is_chosen:
            _end(*mode.run(seconds, seed, min(rate, mode.MOST_RATE), keeps=keep))
    faketime = _faketime()
    announced("scripts/chaos", None if faketime is None else preloaded(faketime))
    result, complaints = run(Options(seconds, seed, rate, faketime, also, keep, leave_out))
    _show(complaints)
    wrong = failed(result)
    if record is not None and not wrong:
        record.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    sys.exit(bool(wrong))


def _faketime() -> Path | None:
    """The library that fakes a process's time; prints what is not tested without it."""
    try:
        return library()
    except MissingError as error:
        print(
            f"clocks are not changed; skewed clients and steps of the server's clock are NOT tested: {error}",
            file=sys.stderr,
        )
        return None


def _end(result: dict[str, Any], complaints: Sequence[str]) -> NoReturn:
    """Print the result and end."""
    _show(complaints)
    print(json.dumps(result))
    sys.exit(bool(complaints))


def _show(complaints: Sequence[str]) -> None:
    for complaint in complaints[:MOST_SHOWN]:
        print(complaint, file=sys.stderr)
    if len(complaints) > MOST_SHOWN:
        print(f"… and {len(complaints) - MOST_SHOWN} more", file=sys.stderr)


if __name__ == "__main__":
    main()
