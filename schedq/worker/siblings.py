"""How the worker processes of one parent share few jobs evenly.

Each has a record in memory that all of them see: how many jobs it holds, and how often it has claimed. So a process
knows what the others do without asking anybody. It claims its share of what waits; and while another one holds fewer
jobs, that one has the first go, for a moment: if it does not come, it is busy with something else, and is not waited
for again until it has claimed.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Sized
from contextlib import suppress
from typing import Final, NamedTuple, Self

from schedq.model.times import monotonic

SIBLINGS: Final = "SCHEDQ_SIBLINGS"
"""Environment variable of a child of `--processes`: file descriptor of the records, its own number among them."""
PATIENCE_S: Final = 0.1
"""Seconds for which a sibling that holds fewer jobs has the first go."""
START_PATIENCE_S: Final = 1.0
"""The same while it starts for the first time, together with this process."""
_MAGIC: Final = b"schedq-1"
_RECORD: Final = struct.Struct("=IIII")
_GONE, _STARTING, _READY = range(3)


class _Record(NamedTuple):
    """What a process says of itself: its state, its slots, the jobs it holds, and a number that each claim changes."""

    state: int
    size: int
    held: int
    claims: int


class Share(NamedTuple):
    """What a claim has to know to take no more than its share.

    Attributes:
        processes: that the jobs are shared among.
        held: jobs that they hold, all together.
        own: those of this process.
    """

    processes: int
    held: int
    own: int


class Board:
    """The records of some processes, in a file without a name that is mapped into the memory of each.

    Attributes:
        fd: the file; children inherit it.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, 0)
        self.count = (len(self._memory) - len(_MAGIC)) // _RECORD.size

    @classmethod
    def create(cls, count: int) -> Board | None:
        """Records for `count` processes; None where there is no room for such a file."""
        with suppress(OSError), tempfile.TemporaryFile() as file:
            file.write(_MAGIC + bytes(_RECORD.size * count))
            file.flush()
            return cls(os.dup(file.fileno()))
        return None

    @classmethod
    def inherited(cls, fd: int) -> Board | None:
        """The one behind a file descriptor; None if that is something else."""
        with suppress(OSError, ValueError):
            found = cls(fd)
            if found._memory[: len(_MAGIC)] == _MAGIC:
                os.close(fd)
                return found
        return None

    def read(self, number: int) -> _Record:
        """The record of one."""
        return _Record(*_RECORD.unpack_from(self._memory, len(_MAGIC) + number * _RECORD.size))

    def write(self, number: int, *, state: int, size: int = 0, held: int = 0, claims: int = 0) -> None:
        """Change the record of one."""
        _RECORD.pack_into(self._memory, len(_MAGIC) + number * _RECORD.size, state, size, held, claims)

    def starting(self, number: int) -> None:
        """The parent starts it for the first time."""
        self.write(number, state=_STARTING)

    def gone(self, number: int) -> None:
        """The parent has seen its end."""
        self.write(number, state=_GONE)


class Siblings:
    """One process's view of the records, and its own one.

    Args:
        board: all records.
        number: which one is its own.
        size: jobs that it runs at a time.
    """

    def __init__(self, board: Board, number: int, size: int) -> None:
        self._board = board
        self._number = number
        self._size = size
        self._claims = 0
        self._holdings: list[Sized] = []
        self._ignored: dict[int, int] = {}  # number -> its claims when it was waited for in vain
        self._waits_since: float | None = None
        self._has_left = False

    @classmethod
    def of_this_process(cls, size: int) -> Self | None:
        """Its own, if a parent has given it siblings. They are not those of the handlers' own processes."""
        words = os.environ.pop(SIBLINGS, "").split()
        board = Board.inherited(int(words[0])) if len(words) == 2 and all(map(str.isdecimal, words)) else None
        return None if board is None else cls(board, int(words[1]), size)

    def join(self, held: Sized) -> None:
        """Count also what is held here; from now on jobs are shared with this process."""
        self._holdings.append(held)
        self.tell()

    def leave(self) -> None:
        """Have no part in it any more."""
        self._has_left = True
        self._board.gone(self._number)

    def tell(self) -> None:
        """What this process holds has changed."""
        if not self._has_left:
            self._board.write(self._number, state=_READY, size=self._size, held=self._own(), claims=self._claims)

    def claimed(self) -> None:
        """A claim is about to be sent."""
        self._claims = (self._claims + 1) % 2**32
        self.tell()

    def share(self) -> Share | None:
        """What a claim has to know; None if there is nobody to share with."""
        others = self._others()
        if not others:
            return None
        own = self._own()
        return Share(1 + len(others), own + sum(other.held for other in others.values()), own)

    def wait_s(self) -> float:
        """Seconds for which others that hold fewer jobs still have the first go; 0: it is this one's turn."""
        own = self._own()
        idler = {number: other for number, other in self._others().items() if other.held < own}
        if not idler:
            self._waits_since = None
            return 0.0
        now = monotonic()
        if self._waits_since is None:
            self._waits_since = now
        is_start = any(other.state == _STARTING for other in idler.values())
        left = self._waits_since + (START_PATIENCE_S if is_start else PATIENCE_S) - now
        if left > 0:
            return left
        self._ignored |= {number: other.claims for number, other in idler.items()}
        self._waits_since = None
        return 0.0

    def _own(self) -> int:
        return sum(map(len, self._holdings))

    def _others(self) -> dict[int, _Record]:
        """Those that can take jobs, as far as is known."""
        found = {}
        for number in range(self._board.count):
            record = self._board.read(number)
            has_room = record.state == _STARTING or (record.state == _READY and record.held < record.size)
            if number != self._number and has_room and self._ignored.get(number) != record.claims:
                found[number] = record
        return found
