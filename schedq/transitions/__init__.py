"""Requests as data: which script, which keys and arguments, how to read the reply.

Nothing here does I/O. The blocking and the asyncio client send the same operations, so each is written once. A request
that needs several round trips is a generator, `RoundTrips`: it yields the operations of one round trip and is sent
their results.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

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
    "together",
    "unwrap",
]

T = TypeVar("T")
MOST_BYTES: Final = 1_048_576
"""The most bytes of payloads and results that one script takes or returns, unless a single one is larger."""


class Operation(NamedTuple, Generic[T]):
    """One request: a move (a script with keys and arguments), or one plain command.

    Attributes:
        name: the verb, for errors.
        script: the move; None for a plain command, whose words are `args`.
        keys: the keys that are sent with the script: its own, except those that it builds (`RARE`; see `scripts.py`).
        args: the script's arguments, or the command's words.
        read: turns Redis's reply into the result, or raises the SchedqError that the reply stands for.
        is_repeatable: whether sending it again after a lost reply changes nothing more. A claim is not repeatable: it
            would take more jobs.
        waits: what must be confirmed about its writes before the caller gets the result.
        unconfirmed: turns the result, and what was not confirmed in time, into the result of the request.
        repeatable_s: seconds after its first sending for which it may be repeated; None for no limit. A repeated
            request that creates a job must find the job's record, which may be deleted later.
        job_ids: the jobs that it stores; included in a StoreUnavailable, which leaves open whether they were stored.
        failed: called with the error if it fails without a reply to read; None for nothing.
        needs_order: it must take effect before the operations that follow it in a request. It is sent with its source,
            because a server that does not know the script would execute only the others at first.
        late_args: its arguments for when that has happened: it is sent again, after the operations that follow it.
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
    failed: Callable[[SchedqError], None] | None = None
    needs_order: bool = False
    late_args: tuple[Argument, ...] | None = None

    def command(self, more_keys: tuple[str, ...] = (), *, with_source: bool = False) -> tuple[Argument, ...]:
        """The words to send; with the script's source for a server that does not know it yet.

        `more_keys` follow the script's own keys; see `QueueKeys.never`.
        """
        if self.script is None:
            return self.args
        keys = (*self.keys, *more_keys)
        is_whole = with_source or self.needs_order
        name, text = ("EVAL", self.script.source) if is_whole else ("EVALSHA", self.script.sha)
        args = self.late_args if with_source and self.late_args is not None else self.args
        return (name, text, len(keys), *keys, *args)


@dataclass(frozen=True, slots=True, eq=False)
class MarkerWait:
    """A wait for the queue's wake marker.

    Attributes:
        seconds: the longest wait.
        is_exact: end it on the client's clock; otherwise the server ends it at its next tick, up to 100 ms late.
    """

    seconds: float
    is_exact: bool


Pipeline = Sequence[Operation[Any]]
"""Operations sent in one round trip."""
RoundTrips = Generator[Pipeline | MarkerWait, Any, T]
"""Yields the operations of one round trip and is sent, for each, its result or its SchedqError. May also yield a wait,
and is sent None."""


def identity(reply: T) -> T:
    """Read a reply that is already the result."""
    return reply


def unwrap(result: T | SchedqError) -> T:
    """Return a result, or raise it if it is an error."""
    if isinstance(result, SchedqError):
        raise result
    return result


def together(requests: Iterable[RoundTrips[T]]) -> RoundTrips[list[T | SchedqError]]:
    """The result of each request, or its SchedqError, in as many round trips as the longest takes; none may wait."""
    running = dict(enumerate(requests))
    results: dict[int, Any] = dict.fromkeys(running)
    found: dict[int, T | SchedqError] = {}
    while running:
        steps: dict[int, Pipeline] = {}
        for nth, request in [*running.items()]:
            try:
                steps[nth] = cast(Pipeline, request.send(results[nth]))
            except StopIteration as stop:
                found[nth] = stop.value
                del running[nth]
            except SchedqError as error:
                found[nth] = error
                del running[nth]
        replies = iter((yield [operation for step in steps.values() for operation in step]) if steps else ())
        results = {nth: [*islice(replies, len(step))] for nth, step in steps.items()}
    return [found[nth] for nth in sorted(found)]


def pairs(reply: Sequence[str]) -> dict[str, str]:
    """A flat reply of names and values as a dict."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def chunked(items: Sequence[T], size: Callable[[T], int], most: int) -> list[list[T]]:
    """Split `items` into chunks for one script each: at most `most` items and `MOST_BYTES`, or a single larger item."""
    found: list[list[T]] = []
    chunk: list[T] = []
    space = -1
    for item in items:
        needed = size(item)
        if needed > space or len(chunk) == most:
            chunk = []
            found.append(chunk)
            space = MOST_BYTES
        chunk.append(item)
        space -= needed
    return found
