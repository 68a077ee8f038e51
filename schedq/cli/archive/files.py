"""The files of one archived queue: a file of JSON lines for each day, the gaps, and the position in the log."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from schedq.cli.state_file import replace_file, sync_folder
from schedq.inspect.archive import ArchivePage, Gap

_POSITION: Final = "position.json"
_GAPS: Final = "gaps.log"
_ENTRY: Final = re.compile(r"\d{1,20}-\d{1,20}")
_BLOCK: Final = 65_536


class QueueFolder:
    """The folder of one queue. The position is stored after everything before it is on disk.

    Args:
        folder: is created when there is something to write.

    Raises:
        click.ClickException: the stored position can't be read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.position = self._read_position()
        """The last entry of the log whose job is on disk; '' at first."""

    def write(self, page: ArchivePage) -> None:
        """Append a page, and then store its position.

        Raises:
            OSError: something can't be written; the same page may be written again.
        """
        if page.position == self.position:
            return
        if not self._folder.exists():
            self._folder.mkdir(parents=True)
            sync_folder(self._folder.parent)
        if page.gap is not None:
            _append(self._folder / _GAPS, [_gap_line(page.gap)])
        days: defaultdict[str, list[bytes]] = defaultdict(list)
        for line in page.lines:
            days[line["at"][:10]].append(_json(line))
        for day, lines in days.items():
            _append(self._folder / f"{day}.jsonl", lines)
        replace_file(self._folder / _POSITION, json.dumps({"version": 1, "entry": page.position}).encode() + b"\n")
        self.position = page.position

    def _read_position(self) -> str:
        path = self._folder / _POSITION
        try:
            found = json.loads(path.read_bytes())
            entry = found["entry"] if isinstance(found, dict) and found.get("version") == 1 else None
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, KeyError) as error:
            raise click.ClickException(f"{path} can't be read ({error}); {_WAY_OUT}") from error
        if not isinstance(entry, str) or not _ENTRY.fullmatch(entry):
            raise click.ClickException(f"{path} holds no position; {_WAY_OUT}")
        return entry


_WAY_OUT: Final = "if it is moved away, the whole log is written again"


def _json(line: object) -> bytes:
    """A line as every reader of JSON takes it: bytes that are no UTF-8, which are surrogates here, become `?`."""
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _gap_line(gap: Gap) -> bytes:
    found = {"after": gap.after, "before": gap.before, "after_ms": _ms(gap.after), "before_ms": _ms(gap.before)}
    return _json(found)


def _ms(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])


def _append(path: Path, lines: Iterable[bytes]) -> None:
    """Append lines, on disk when this returns. What a crash left of a line is removed first."""
    is_new = not path.exists()
    with open(path, "ab+") as file:
        file.truncate(_end_of_last_line(file.fileno()))
        file.write(b"".join(line + b"\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())
    if is_new:
        sync_folder(path.parent)


def _end_of_last_line(descriptor: int) -> int:
    """The offset after the last newline of a file."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
