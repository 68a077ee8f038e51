"""`schedq gates ls`, `show` and `keys`: commands that read gates."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

import click
from rich.table import Table

from schedq.cli import output
from schedq.cli.params import GATE_NAME, QUEUE_NAME, json_option, queue_option, redis_option
from schedq.cli.queues import queue_of_job
from schedq.inspect import display, gate_words
from schedq.inspect.gates import KEY_STATES, GateKey, GateStatus
from schedq.inspect.queue_names import nearest
from schedq.queue.queue import Queue

_MOST_SHOWN: Final = 20
"""Maximum number of keys that `show` lists."""
_WIDE: Final = 100


def known_gate(queue: Queue, name: str | None, way_out: str = "") -> GateStatus | None:
    """One gate, or the queue's own limits for None, which may be None.

    Raises:
        click.ClickException: there is no such gate; the message names the most similar one, and `way_out`.
    """
    found = queue.gates.get(name)
    if found is not None or name is None:
        return found
    there = [gate.name for gate in queue.gates.list() if gate.name]
    others = nearest(name, there) or (f"; it has {', '.join(there[:_MOST_SHOWN])}" if there else "; it has none")
    raise click.ClickException(f"queue {queue.name} has no gate {name}{others}{way_out}")


@click.command(
    epilog="""\b
Examples:
  schedq gates ls
  schedq gates ls emails --json""",
)
@click.argument("name", required=False, type=QUEUE_NAME)
@queue_option
@redis_option
@json_option
def ls(name: str | None, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """List the gates of the queue NAME: waiting and running jobs, limits, and which are full, paused or resting."""
    with queue_of_job(name or queue_name, redis_url) as queue:
        found, name = queue.gates.list(), queue.name
    if as_json:
        output.show_json({"queue": name, "gates": [gate.to_dict() for gate in found]})
    elif not found:
        output.line(f"queue {name} has no gates")
    else:
        titles = ["gate", "waiting", "keys", "ready", "running", "state", "longest", "rate", "of a key"]
        rows = [_row(gate) for gate in found]
        if output.width() < _WIDE:
            titles, rows = titles[:6], [row[:6] for row in rows]
        output.show(output.table(titles, rows, right=titles[1:4], times=(4, 5)))


def _row(gate: GateStatus) -> tuple[str, ...]:
    more = "" if gate.is_exact else "+"
    queue_or_gate = (
        ("–", "–", "–") if not gate.name else (f"{gate.waiting:,}{more}", f"{gate.keys:,}{more}", f"{gate.ready:,}")
    )
    return (
        gate.name or "(the queue)",
        *queue_or_gate,
        gate_words.running(gate),
        gate_words.state(gate, gate.now_ms),
        gate_words.longest(gate) or display.NOTHING,
        gate_words.rates(gate.limits.rate) or display.NOTHING,
        gate_words.of_key(gate.limits) or display.NOTHING,
    )


@click.command(
    "show",
    epilog="""\b
Examples:
  schedq gates show api --queue emails
  schedq gates show --queue emails       the queue's own limits""",
)
@click.argument("gate", metavar="[NAME]", required=False, type=GATE_NAME)
@queue_option
@redis_option
@json_option
def show_one(gate: str | None, queue_name: str | None, redis_url: str | None, as_json: bool) -> None:
    """Show the gate NAME: limits and who set them, what waits and runs, and the keys with most waiting jobs.

    Without NAME, show the limits of the queue itself.
    """
    with queue_of_job(queue_name, redis_url) as queue:
        found, name = known_gate(queue, gate), queue.name
        keys = queue.gates.keys(gate, limit=_MOST_SHOWN) if gate else []
    if as_json:
        shown = {} if found is None else found.to_dict()
        output.show_json({"queue": name, **shown, "keys_shown": [asdict(key) for key in keys]})
    elif found is None:
        output.line(f"queue {name} has no limits of its own")
    else:
        output.show(output.facts(_facts(name, found)))
        if keys:
            output.show("", output.heading("keys with most waiting jobs"), _key_table(keys, found.now_ms))


def _facts(queue: str, gate: GateStatus) -> list[tuple[str, str]]:
    now = gate.now_ms
    facts = [
        ("gate" if gate.name else "limits of", gate.name or "the queue itself"),
        ("queue", queue),
        ("state", gate_words.why(gate, now)),
        ("defined", _defined(gate)),
        *gate_words.limits(gate),
        ("damaged", ", ".join(gate.damaged)),
        ("running", gate_words.running(gate)),
        ("longest", gate_words.longest(gate)),
    ]
    if gate.name:
        resting = gate_words.at_least(gate.resting, is_exact=gate.resting_is_exact)
        facts += [("waiting", gate_words.waiting(gate)), ("keys", f"{gate.ready:,} ready, {resting} resting")]
    return facts


def _defined(gate: GateStatus) -> str:
    if gate.in_code:
        return "in code"
    return "by an operator" if gate.set_by_operator else "nowhere: jobs name it, and it limits nothing"


@click.command(
    epilog="""\b
Examples:
  schedq gates keys api
  schedq gates keys api --state full""",
    no_args_is_help=True,
)
@click.argument("gate", metavar="NAME", type=GATE_NAME)
@click.option(
    "--state", type=click.Choice(KEY_STATES), metavar="STATE", help=f"Only keys that are: {', '.join(KEY_STATES)}."
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, metavar="N", help="Maximum shown."
)
@queue_option
@redis_option
@json_option
def keys(
    gate: str, state: str | None, limit: int, queue_name: str | None, redis_url: str | None, as_json: bool
) -> None:
    """List the keys of the gate NAME that have waiting or running jobs or are held; most waiting jobs first.

    At most 10,000 keys are looked at.
    """
    with queue_of_job(queue_name, redis_url) as queue:
        found, name = known_gate(queue, gate), queue.name
        there = queue.gates.keys(gate, state, limit)
    assert found is not None
    if as_json:
        output.show_json({"queue": name, "gate": gate, "now_ms": found.now_ms, "keys": [asdict(key) for key in there]})
    elif not there:
        output.line(f"gate {gate} of queue {name} has no {f'{state} ' if state else ''}keys")
    else:
        output.show(_key_table(there, found.now_ms))
        if len(there) == limit:
            output.line(f"the first {limit}; --limit shows more, --state only some")


def _key_table(keys: list[GateKey], now_ms: int) -> Table:
    rows = [
        (key.key or "(no key)", f"{key.waiting:,}", f"{key.running:,}", gate_words.why(key, now_ms)) for key in keys
    ]
    return output.table(["key", "waiting", "running", "state"], rows, whole=0, right=["waiting", "running"], times=(3,))
