"""Requests as data: which script, which keys, which arguments, how to read the reply.

Nothing here talks to anybody. The blocking and the asyncio door send the same operations, so nothing is
written twice. An operation that takes several round trips is a `Flow`: a generator that yields the operations
of one round and is sent their answers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from schedq.durability import Wait
from schedq.errors import SchedqError
from schedq.lua import Script

T = TypeVar("T")
Argument = str | int


class Operation(NamedTuple, Generic[T]):
    """One request: a move (a script with keys and arguments), or one plain command.

    Attributes:
        name: the verb, for errors.
        script: the move; None for a plain command, which is `args` then.
        keys: every fixed key that the script touches.
        args: the script's arguments, or the command's words.
        read: turns Redis's reply into the answer; raises a SchedqError where the answer is one.
        is_repeatable: sending it again after a lost reply changes nothing more. A claim is not: it would take more.
        waits: what must hold of what it wrote before it is answered.
        unconfirmed: turns the answer, and what is missing, into the answer of one whose waits were not kept.
        repeatable_s: seconds after its first sending for which it may be sent again; None for ever. A request that
            makes a job must find the job's record, which need not be kept for longer.
    """

    name: str
    script: Script | None
    keys: tuple[str, ...]
    args: tuple[Argument, ...]
    read: Callable[[Any], T]
    is_repeatable: bool = True
    waits: tuple[Wait, ...] = ()
    unconfirmed: Callable[[T, str], T | SchedqError] = lambda answer, _: answer
    repeatable_s: float | None = None

    def command(self, guard: tuple[str, ...] = (), *, with_source: bool = False) -> tuple[Argument, ...]:
        """The words to send; with the script's source for a server that does not know it yet.

        Keys of `guard` are named behind the script's own; see `QueueKeys.never`.
        """
        if self.script is None:
            return self.args
        keys = (*self.keys, *guard)
        name, text = ("EVAL", self.script.source) if with_source else ("EVALSHA", self.script.sha)
        return (name, text, len(keys), *keys, *self.args)


@dataclass(frozen=True, slots=True)
class Block:
    """A wait for the queue's wake marker.

    Attributes:
        seconds: how long at most.
        is_exact: end it on our own clock; otherwise the server may end it, at its next tick (up to 100 ms late).
    """

    seconds: float
    is_exact: bool


Round = Sequence[Operation[Any]]
Flow = Generator[Round | Block, Any, T]
"""Yields the operations of one round trip, and is sent, for each, its answer or the SchedqError it ended in; or yields
a wait, and is sent nothing of use."""


def same(reply: T) -> T:
    """Read a reply that is the answer already."""
    return reply


def firm(answer: T | SchedqError) -> T:
    """The answer, or raise it if it is an error."""
    if isinstance(answer, SchedqError):
        raise answer
    return answer
