"""Memos of more than 1 KiB, which lose their values when a run completes: kept in this process for `assert_replays`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from schedq.model.payload import size_of
from schedq.model.runs import MOST_BYTES, STEP, Memo

LARGE: Final = 1024
"""Bytes of a memo from which on a completed run drops its value; as in `shared/shorten.lua`."""
_MOST_KEPT: Final = 64 * MOST_BYTES


class LargeMemos:
    """The large memos of the runs that completed last, up to 64 MiB: at least those of 60 runs."""

    def __init__(self) -> None:
        self._memos: dict[str, dict[str, str]] = {}
        self._bytes = 0

    def keep(self, job_id: str, fields: Mapping[str, str]) -> None:
        """Keep the large memos of a run that is about to complete."""
        self._drop(job_id)
        large = {name: text for name, text in fields.items() if name.startswith(STEP) and size_of(text) > LARGE}
        if large:
            self._memos[job_id] = large
            self._bytes += _size(large)
        while self._bytes > _MOST_KEPT:
            self._drop(next(iter(self._memos)))

    def _drop(self, job_id: str) -> None:
        self._bytes -= _size(self._memos.pop(job_id, {}))

    def values_of(self, job_id: str, memos: Mapping[str, Memo]) -> dict[str, Memo]:
        """The memos that have lost their values, with them. A job of an earlier test may have had the same id."""
        found = {}
        for name, text in self._memos.get(job_id, {}).items():
            short, whole = memos.get(name.removeprefix(STEP)), Memo.read(text)
            if whole is not None and short == whole._replace(value=None):
                found[name.removeprefix(STEP)] = whole
        return found


def _size(memos: Mapping[str, str]) -> int:
    return sum(map(size_of, memos.values()))


large_memos: Final = LargeMemos()
"""Those of this process."""
