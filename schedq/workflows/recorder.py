"""What the runtime of workflows needs from the record of a run, wherever that is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from schedq.model.runs import Memo, RunWait

CANCELLED = "cancelled"
"""The outcome of an operation that the workflow's own code has cancelled, for instance by `asyncio.timeout`."""


class Suspended(BaseException):
    """An attempt has ended because its run can only wait. Passes through `except Exception`, as a cancellation does.

    Attributes:
        waits: what the run waits for.
    """

    def __init__(self, waits: Sequence[RunWait]) -> None:
        super().__init__("the run is suspended")
        self.waits = tuple(waits)


class Recorder(Protocol):
    """The record of one run, as one attempt sees it. Names are those of operations, with the path of their branch.

    Each method raises RunLost if the attempt has lost its lease, and RunStopped if the job was cancelled.

    Attributes:
        memos: the operations that are over.
        begun: the names of all operations that earlier attempts have begun and left a trace of.
        since: since when operations wait that earlier attempts have begun (ms), by name.
        topics: the topics of messages that nothing had taken when the record was read.
        tries: the steps that have failed: how often, when the next try begins (ms), the last error.
        version: the version of the code with which the run began.
        began_ms: when the run began, on Redis's clock.
        deadline_ms: when it has taken too long; None for never.
        args: the arguments of a run that started over, in JSON types; None for those in the payload.
        life: how often it has started over.
        requeued: how often its job was requeued.
        undos: the calls that undo steps which have begun, by name; each is a payload as JSON.
        undoing: the error of a run that failed and undoes what it has done, '' for one that was cancelled; else None.
    """

    memos: dict[str, Memo]
    begun: set[str]
    topics: set[str]
    since: dict[str, int]
    tries: dict[str, tuple[int, int, str]]
    version: int
    began_ms: int
    deadline_ms: int | None
    args: tuple[Sequence[Any], Mapping[str, Any]] | None
    life: int
    requeued: int
    undos: dict[str, str]
    undoing: str | None

    def check(self, name: str) -> None:
        """Check that the record has room for another memo of this name.

        Raises:
            RecordFull: it has not.
        """
        ...

    async def write(self, name: str, memo: Memo, replaced: str = "") -> Memo:
        """Store a memo, in place of another one; returns the stored one, which may be an earlier one."""
        ...

    async def failed(self, name: str, error: str, delay_ms: int, *, counts: bool = True) -> tuple[int, int]:
        """Store that a step has failed and is tried again; returns how often it has failed, and when the next begins.

        `counts=False`: the try does not count, because the step asked to be put off.
        """
        ...

    async def add_undo(self, name: str, call: str) -> str:
        """Store the call that undoes a step, before it begins; returns the stored one, which may be an earlier one."""
        ...

    async def until(self, name: str, *, delay_ms: int | None = None, at_ms: int | None = None) -> tuple[int, int]:
        """Fix the instant of a wait, at the first call; returns it and the present one."""
        ...

    async def receive(self, name: str, topic: str, timeout_ms: int | None) -> Memo | RunWait:
        """Take the first message that counts, or decide that the wait is over, or say until when to wait."""
        ...

    async def decide(self, name: str, memo: Memo, losers: Sequence[str]) -> Memo:
        """Store which branch decided. Messages that receives of `losers` took go back into their boxes."""
        ...

    async def start_over(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Begin the run again with other arguments, in JSON types, and an empty record."""
        ...
