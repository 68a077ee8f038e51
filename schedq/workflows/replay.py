"""The first part of an attempt: branches come again to where they were in earlier attempts, each in its time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from schedq.workflows.branches import ENDED, Branch

PATIENCE_S: Final = 60.0
"""Seconds that a branch may take to come to where it was, or to be cancelled again."""
LONGEST_S: Final = 86_400.0
QUIET_TURNS: Final = 10
"""Turns of the event loop in which a branch whose request has a result has certainly continued."""
_MORE_TURNS: Final = 3 * QUIET_TURNS
"""More than it takes to decide a race and to cancel those that have lost."""


class Replay:
    """Where the branches of an attempt are, compared with earlier attempts.

    Args:
        main: the workflow's function.
        begun: the names of all operations that earlier attempts have begun.
    """

    def __init__(self, main: Branch, begun: Iterable[str]) -> None:
        self._main = main
        self._ahead = set(begun)
        self._moved = asyncio.Event()
        self._turns: list[tuple[int, str]] = []
        self._passed = 0

    def reached(self, name: str) -> None:
        """Note that a branch has begun an operation."""
        self._ahead.discard(name)
        self._moved.set()

    def moved(self) -> None:
        """Note that a branch has ended."""
        self._moved.set()

    async def catch_up(self, losing: Sequence[Branch]) -> None:
        """Let branches that have lost come to where they were in earlier attempts, to be cancelled there.

        Otherwise the `try` whose `finally` cleans up might not have begun yet.
        """
        for each in losing:
            for below in each.below():
                below.is_losing = True
        loop = asyncio.get_running_loop()
        ends = loop.time() + PATIENCE_S
        timer = loop.call_at(ends, self._moved.set)
        try:
            while loop.time() < ends and any(self._is_behind(it) for each in losing for it in each.below()):
                self._moved.clear()
                await self._moved.wait()
        finally:
            timer.cancel()

    def leave_out(self, fork: str, kept: Sequence[Branch]) -> None:
        """Note that only these branches of a fork run, because it was decided before."""
        paths = tuple(f"{each.path}{mark}" for each in kept for mark in "/.")
        self._ahead = {name for name in self._ahead if not name.startswith(f"{fork}.") or name.startswith(paths)}

    def _is_behind(self, branch: Branch) -> bool:
        if branch.state == ENDED or any(each.is_blocked or each.operation for each in branch.below()):
            return False  # it was no further
        return any(name.startswith((f"{branch.path}/", f"{branch.path}.")) for name in self._ahead)

    async def block(self, branch: Branch, seconds: float) -> None:
        """Let a branch wait to be cancelled."""
        branch.is_blocked = True
        self._moved.set()
        try:
            await asyncio.sleep(min(seconds, LONGEST_S))
        finally:
            branch.is_blocked = False

    async def turn(self, branch: Branch, instant_ms: int) -> None:
        """Return when a branch whose wait is over may continue.

        When a run is taken up late, several waits may be over. They end in the order of their instants, as they would
        have ended in time, so that the first one can still win a race, or fail, before others continue.
        """
        if branch.parent is None:
            return
        entry = (instant_ms, branch.path)
        self._turns.append(entry)
        try:
            passed = -1
            while passed != self._passed or min(self._turns) != entry:  # one that has just passed has yet to decide
                passed = self._passed
                await self.quiet(self._main, _MORE_TURNS)
        finally:
            self._turns.remove(entry)
            self._passed += 1

    async def quiet(self, branch: Branch, turns: int) -> None:
        """Return when no request of a branch, or of one below it, is in progress for some turns of the event loop."""
        left = turns
        while left:
            if asking := [each.asking for each in branch.below() if each.asking is not None]:
                await asyncio.wait(asking)
                left = turns
            await asyncio.sleep(0)
            left -= 1
