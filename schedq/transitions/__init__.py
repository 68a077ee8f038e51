"""Requests as data: which script, which keys, which arguments, how to read the reply.

Nothing here does I/O. The blocking and the asyncio client send the same operations, so nothing is written twice. A
request that takes several round trips is a generator, `RoundTrips`: it yields the operations of one round trip, and
is sent their results.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from schedq.errors import SchedqError
from schedq.model.durability import Wait
from schedq.transitions.scripts import Argument, Binding, Script

__all__ = [
    "MOST_BYTES",
    "Argument",
    "Binding",
    "MarkerWait",
    "Operation",
    "Pipeline",
    "RoundTrips",
    "chunked",
    "identity",
    "pairs",
    "unwrap",
]

T = TypeVar("T")
MOST_BYTES: Final = 1_048_576
"""Bytes of payloads and results that one script takes or returns, unless a single one is larger."""


class Operation(NamedTuple, Generic[T]):
    """One request: a move (a script with keys and arguments), or one plain command.

    Attributes:
        name: the verb, for errors.
        script: the move; None for a plain command, which is `args` then.
        keys: every fixed key that the script touches.
        args: the script's arguments, or the command's words.
        read: turns Redis's reply into the result; raises a SchedqError where the reply means one.
        is_repeatable: sending it again after a lost reply changes nothing more. A claim is not: it would take more.
        waits: what must hold of what it wrote before the caller gets the result.
        unconfirmed: turns the result, and what is missing, into the result of a request whose waits were not kept.
        repeatable_s: seconds after its first sending for which it may be sent again; None for ever. A request that
            makes a job must find the job's record, which need not be kept for longer.
        job_ids: of the jobs that it stores; a StoreUnavailable, after which nobody knows whether it did, has them.
    """

    name: str
    script: Script | None
    keys: tuple[str, ...]
    args: tuple[Argument, ...]
    read: Callable[[Any], T]
    is_repeatable: bool = True
    waits: tuple[Wait, ...] = ()
    unconfirmed: Callable[[T, str], T | SchedqError] = lambda result, _: result
    repeatable_s: float | None = None
    job_ids: tuple[str, ...] = ()

    def command(self, more_keys: tuple[str, ...] = (), *, with_source: bool = False) -> tuple[Argument, ...]:
        """The words to send; with the script's source for a server that does not know it yet.

        `more_keys` are named behind the script's own; see `QueueKeys.never`.
        """
        if self.script is None:
            return self.args
        keys = (*self.keys, *more_keys)
        name, text = ("EVAL", self.script.source) if with_source else ("EVALSHA", self.script.sha)
        return (name, text, len(keys), *keys, *self.args)


@dataclass(frozen=True, slots=True)
class MarkerWait:
    """A wait for the queue's wake marker.

    Attributes:
        seconds: how long at most.
        is_exact: end it on our own clock; otherwise the server may end it, at its next tick (up to 100 ms late).
    """

    seconds: float
    is_exact: bool


Pipeline = Sequence[Operation[Any]]
"""Operations that are sent in one round trip."""
RoundTrips = Generator[Pipeline | MarkerWait, Any, T]
"""Yields the operations of one round trip, and is sent, for each, its result or the SchedqError it ended in; or yields
a wait, and is sent nothing of use."""


def identity(reply: T) -> T:
    """Read a reply that is the result as it is."""
    return reply


def unwrap(result: T | SchedqError) -> T:
    """The result, or raise it if it is an error."""
    if isinstance(result, SchedqError):
        raise result
    return result


def pairs(reply: Sequence[str]) -> dict[str, str]:
    """A flat reply of names and values as a dict."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def chunked(items: Sequence[T], size: Callable[[T], int], most: int) -> list[list[T]]:
    """`items` in order, cut into chunks that one script may take: `most` items, and `MOST_BYTES` or a single item."""
    found: list[list[T]] = []
    space = 0
    for item in items:
        if not found or size(item) > space or len(found[-1]) == most:
            found.append([])
            space = MOST_BYTES
        found[-1].append(item)
        space -= size(item)
    return found
