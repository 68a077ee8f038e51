"""Lets the worker processes of one parent share few jobs evenly.

Each process has a record in shared memory with the number of jobs that it holds and how often it has claimed, so it
knows the state of the others without any request. A process claims its share of the waiting jobs. If another one holds
fewer jobs, that one may claim first, for a moment. If it does not, it is busy with something else, and the others do
not wait for it again until it has claimed.
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
"""Environment variable of a child of `--processes`: the file descriptor of the records, and the number of its own."""
PATIENCE_S: Final = 0.1
"""Seconds for which a sibling that holds fewer jobs may claim first."""
START_PATIENCE_S: Final = 1.0
"""The same while the sibling starts for the first time, together with this process."""
_MAGIC: Final = b"schedq-1"
_RECORD: Final = struct.Struct("=IIII")
_GONE, _STARTING, _READY = range(3)


class _Record(NamedTuple):
    """A process's record: its state, its slots, the jobs that it holds, and a number that changes with each claim."""

    state: int
    size: int
    held: int
    claims: int


class Share(NamedTuple):
    """The numbers that a claim needs to take no more than its share.

    Attributes:
        processes: the number of processes that share the jobs.
        held: the number of jobs that they hold together.
        own: the number of jobs that this process holds.
    """

    processes: int
    held: int
    own: int


class Board:
    """The records of some processes, in an unnamed file that each of them maps into its memory.

    Attributes:
        fd: the descriptor of the file, which children inherit.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._memory = mmap.mmap(fd, 0)
        self.count = (len(self._memory) - len(_MAGIC)) // _RECORD.size

    @classmethod
    def create(cls, count: int) -> Board | None:
        """Create records for `count` processes; return None if there is no space for the file."""
        with suppress(OSError), tempfile.TemporaryFile() as file:
            file.write(_MAGIC + bytes(_RECORD.size * count))
            file.flush()
            return cls(os.dup(file.fileno()))
        return None

    @classmethod
    def inherited(cls, fd: int) -> Board | None:
        """Open the records behind a file descriptor; return None if it is something else."""
        with suppress(OSError, ValueError):
            found = cls(fd)
            if found._memory[: len(_MAGIC)] == _MAGIC:
                os.close(fd)
                return found
        return None

    def read(self, number: int) -> _Record:
        """Return the record of a process."""
        return _Record(*_RECORD.unpack_from(self._memory, len(_MAGIC) + number * _RECORD.size))

    def write(self, number: int, *, state: int, size: int = 0, held: int = 0, claims: int = 0) -> None:
        """Write the record of a process."""
        _RECORD.pack_into(self._memory, len(_MAGIC) + number * _RECORD.size, state, size, held, claims)

    def starting(self, number: int) -> None:
        """Note that the parent starts a process for the first time."""
        self.write(number, state=_STARTING)

    def gone(self, number: int) -> None:
        """Note that a process has exited."""
        self.write(number, state=_GONE)


class Siblings:
    """One process's view of the records, and its own record.

    Args:
        board: all records.
        number: the number of its own record.
        size: the number of its slots.
    """

    def __init__(self, board: Board, number: int, size: int) -> None:
        self._board = board
        self._number = number
        self._size = size
        self._claims = 0
        self._holdings: list[Sized] = []
        self._ignored: dict[int, int] = {}  # number -> its claims when it did not use its chance to claim first
        self._waits_since: float | None = None
        self._has_left = False

    @classmethod
    def of_this_process(cls, size: int) -> Self | None:
        """Return the siblings of this process, or None. Removes the variable, so that handlers' processes have none."""
        words = os.environ.pop(SIBLINGS, "").split()
        board = Board.inherited(int(words[0])) if len(words) == 2 and all(map(str.isdecimal, words)) else None
        return None if board is None else cls(board, int(words[1]), size)

    def join(self, held: Sized) -> None:
        """Count these jobs as well; from now on jobs are shared with this process."""
        self._holdings.append(held)
        self.tell()

    def leave(self) -> None:
        """Stop sharing jobs with this process."""
        self._has_left = True
        self._board.gone(self._number)

    def tell(self) -> None:
        """Update the record after a change of the jobs that this process holds."""
        if not self._has_left:
            self._board.write(self._number, state=_READY, size=self._size, held=self._own(), claims=self._claims)

    def claimed(self) -> None:
        """Note that a claim is about to be sent."""
        self._claims = (self._claims + 1) % 2**32
        self.tell()

    def share(self) -> Share | None:
        """Return the numbers for a claim; None if there is no process to share with."""
        others = self._others()
        if not others:
            return None
        own = self._own()
        return Share(1 + len(others), own + sum(other.held for other in others.values()), own)

    def wait_s(self) -> float:
        """Return the seconds for which others that hold fewer jobs may still claim first; 0 if this one may claim."""
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
        """Return the records of the other processes that seem to have free slots."""
        found = {}
        for number in range(self._board.count):
            record = self._board.read(number)
            has_room = record.state == _STARTING or (record.state == _READY and record.held < record.size)
            if number != self._number and has_room and self._ignored.get(number) != record.claims:
                found[number] = record
        return found
