"""A server that fails, and goes back to what its replica has: the writes since are lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from schedq.model.settings import Settings
from schedq.transitions import Operation, identity, scripts
from scripts.tools.explore.actors import Plan, RequestGenerator

if TYPE_CHECKING:
    from scripts.tools.explore.ledger import Entry, Ledger

_REPLICA: Final = "replica"
_COPY: Final = scripts.script(
    "copies",
    """
for _, key in ipairs(redis.call('KEYS', ARGV[2] .. '*')) do redis.call('DEL', key) end
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  redis.call('COPY', key, ARGV[2] .. string.sub(key, #ARGV[1] + 1))
end
return 1
""",
)


def fails_over() -> Plan:
    """A replica has the writes up to an instant; later it becomes the master."""

    def steps(queue: Settings) -> RequestGenerator:
        mine, kept = queue.keys.prefix, f"queue:{_REPLICA}:"
        yield [Operation("replicate", _COPY, (mine,), (mine, kept), identity)]
        yield [Operation("fail_over", _COPY, (mine,), (kept, mine), identity)]

    return steps


def replicated(ledger: Ledger, entry: Entry) -> Iterator[str]:
    """The replica knows the jobs of the queue as they are now."""
    _copy(ledger, entry.queue.name, _REPLICA)
    yield from ()


def failed_over(ledger: Ledger, entry: Entry) -> Iterator[str]:
    """The jobs of the queue are as they were for the replica."""
    _copy(ledger, _REPLICA, entry.queue.name)
    yield from ()


def _copy(ledger: Ledger, source: str, target: str) -> None:
    for key in [key for key in ledger if key.startswith(f"{target}/")]:
        del ledger[key]
    for key in [key for key in ledger if key.startswith(f"{source}/")]:
        ledger[f"{target}/{key.partition('/')[2]}"] = ledger[key]
