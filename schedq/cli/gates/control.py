"""`schedq gates set`, `reset`, `pause`, `hold`, `resume` and `remove`: commands that change gates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import click

from schedq.cli import output
from schedq.cli.gates.show import known_gate
from schedq.cli.params import (
    DURATION,
    GATE_KEY,
    GATE_NAME,
    Checked,
    ask,
    json_option,
    queue_option,
    redis_option,
    yes_option,
)
from schedq.cli.queues import queue_of_job, wrong_usage
from schedq.inspect import display, gate_words
from schedq.model.gates import parsed_rates
from schedq.model.times import span
from schedq.queue.queue import Queue

_FORCED: Final = "; --force names a new one"


_RATES: Final = Checked("rates", parsed_rates)
_gate_argument: Final = click.argument("gate", metavar="NAME", type=GATE_NAME)
_key_option: Final = click.option("--key", type=GATE_KEY, metavar="K", help="Only this key of the gate.")
_force_option: Final = click.option("--force", is_flag=True, help="Even if nothing has named the gate yet.")


def _known(queue: Queue, gate: str | None, *, force: bool) -> None:
    if not force:
        known_gate(queue, gate, _FORCED)


def _which(queue: Queue, gate: str, key: str | None) -> str:
    return f"{'' if key is None else f'key {key} of '}gate {gate} of queue {queue.name}"


@click.command(
    "set",
    epilog="""\b
Examples:
  schedq gates set api --concurrency 10 --rate 500/m
  schedq gates set api --key-concurrency 2 --key-rate 10/s,100/m
  schedq gates set api --rate none
  schedq gates set --queue emails --concurrency 200""",
    no_args_is_help=True,
)
@click.argument("gate", metavar="[NAME]", required=False, type=GATE_NAME)
@click.option(
    "--concurrency", type=click.IntRange(0), metavar="N", help="How many jobs run at the same time; 0: no limit."
)
@click.option("--rate", type=_RATES, metavar="R[,R...]", help="How many start: 10/s, 500/m, 1000/30s; none: no limit.")
@click.option("--key-concurrency", type=click.IntRange(0), metavar="N", help="The same as --concurrency for each key.")
@click.option("--key-rate", type=_RATES, metavar="R[,R...]", help="The same as --rate for each key.")
@click.option("--weight", type=click.IntRange(1, 1000), metavar="N", help="Turns for one turn of a gate with weight 1.")
@click.option("--serial/--no-serial", default=None, help="Run the jobs of a key one at a time, in order, or not.")
@_force_option
@queue_option
@redis_option
@json_option
def set_limits(
    gate: str | None, force: bool, queue_name: str | None, redis_url: str | None, as_json: bool, **limits: Any
) -> None:
    """Set limits of the gate NAME, for all workers at once. They hold, whatever the code says, until `gates reset`.

    Without NAME, set --concurrency or --rate of the queue itself. Running jobs continue.
    """
    given = {name: value or None for name, value in limits.items() if value is not None}
    if not given:
        raise click.UsageError("give a limit to set, such as --concurrency 10 or --rate 500/m")
    with queue_of_job(queue_name, redis_url) as queue, wrong_usage():
        _known(queue, gate, force=force)
        queue.gates.set(gate, **given)
        found, name = queue.gates.get(gate), queue.name
    if as_json:
        output.show_json({"queue": name, **(found.to_dict() if found else {})})
        return
    words = "; ".join(f"{limit} {value}" for limit, value in gate_words.limits(found)) if found else ""
    output.line(f"{gate_words.named(gate or '')}{f' of queue {name}' if gate else f' {name}'}: {words}")


@click.command(
    epilog="""\b
Examples:
  schedq gates reset api
  schedq gates reset --queue emails      the queue's own limits""",
)
@click.argument("gate", metavar="[NAME]", required=False, type=GATE_NAME)
@queue_option
@redis_option
@json_option
def reset(gate: str | None, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Let the limits in the code of the gate NAME hold again; without NAME, those of the queue itself."""
    with queue_of_job(queue_name, redis_url) as queue:
        known_gate(queue, gate)
        did, name = queue.gates.reset(gate), queue.name
        found = queue.gates.get(gate)
    if as_json:
        output.show_json({"queue": name, "gate": gate, "was_set": did})
        return
    words = "; ".join(f"{limit} {value}" for limit, value in gate_words.limits(found)) if found else ""
    said = "limits of the code hold again" if did else "nothing had been set"
    output.line(f"{gate_words.named(gate or '')} of queue {name}: {said}: {words or 'no limits'}")


def _act(
    act: Callable[[Queue], bool],
    gate: str,
    key: str | None,
    said: Callable[[bool], str],
    place: tuple[str | None, str | None],
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Act on a gate or a key, and say what changed and how much waits."""
    with queue_of_job(*place) as queue:
        _known(queue, gate, force=force)
        changed = act(queue)
        which, name = _which(queue, gate, key), queue.name
        found = queue.gates.get(gate)
    if as_json:
        output.show_json({"queue": name, "gate": gate, "key": key, "changed": changed})
        return
    more = (
        "" if found is None or key is not None else f"; {gate_words.waiting(found)} waiting, {found.running:,} running"
    )
    output.line(f"{which} {said(changed)}{more}")


@click.command(
    epilog="""\b
Examples:
  schedq gates pause api
  schedq gates pause api --key 42""",
    no_args_is_help=True,
)
@_gate_argument
@_key_option
@_force_option
@queue_option
@redis_option
@json_option
def pause(
    gate: str, key: str | None, force: bool, queue_name: str | None, redis_url: str | None, as_json: bool
) -> None:
    """Stop starting jobs of the gate NAME, or of one of its keys, until `gates resume`. Running jobs finish."""
    _act(
        lambda queue: queue.gates.pause(gate, key),
        gate,
        key,
        lambda changed: "is paused" if changed else "was already paused",
        (queue_name, redis_url),
        force=force,
        as_json=as_json,
    )


@click.command(
    epilog="""\b
Examples:
  schedq gates hold api --for 30s
  schedq gates hold api --for 5m --key 42""",
    no_args_is_help=True,
)
@_gate_argument
@click.option("--for", "period", type=DURATION, required=True, metavar="D", help="How long: 90 (seconds), 5m, 1d12h.")
@_key_option
@_force_option
@queue_option
@redis_option
@json_option
def hold(
    gate: str,
    period: timedelta,
    key: str | None,
    force: bool,
    queue_name: str | None,
    redis_url: str | None,
    as_json: bool,
) -> None:
    """Stop starting jobs of the gate NAME, or of one of its keys, for a while. It never shortens a longer hold."""
    words = span(round(period.total_seconds() * 1000))
    _act(
        lambda queue: queue.gates.hold(gate, period, key),
        gate,
        key,
        lambda changed: f"is held for {words}" if changed else "was already held for longer",
        (queue_name, redis_url),
        force=force,
        as_json=as_json,
    )


@click.command(
    epilog="""\b
Examples:
  schedq gates resume api
  schedq gates resume api --key 42""",
    no_args_is_help=True,
)
@_gate_argument
@_key_option
@queue_option
@redis_option
@json_option
def resume(gate: str, key: str | None, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """End a pause or a hold of the gate NAME, or of one of its keys. Those of keys and of the gate are independent."""
    _act(
        lambda queue: queue.gates.resume(gate, key),
        gate,
        key,
        lambda changed: "is resumed" if changed else "was neither paused nor held",
        (queue_name, redis_url),
        force=False,
        as_json=as_json,
    )


@click.command(
    epilog="Example:  schedq gates remove api --yes",
    no_args_is_help=True,
)
@_gate_argument
@yes_option
@queue_option
@redis_option
@json_option
def remove(gate: str, is_sure: bool, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Remove all limits of the gate NAME, after confirmation. Jobs that wait in it are no longer limited.

    A gate that is still in the code of a worker is defined again when it starts.
    """
    with queue_of_job(queue_name, redis_url) as queue:
        found = known_gate(queue, gate)
        assert found is not None
        jobs = f"{display.count(found.waiting, 'waiting job')}" + ("" if found.is_exact else " or more")
        ask(f"Remove the limits of gate {gate} of queue {queue.name} ({jobs})?", is_sure=is_sure)
        did, name = queue.gates.remove(gate), queue.name
    if as_json:
        output.show_json({"queue": name, "gate": gate, "was_defined": did})
    else:
        output.line(f"gate {gate} of queue {name} {'has no limits now' if did else 'had no limits'}")
