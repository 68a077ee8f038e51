"""The records of a run's processes, one file per process: a JSON list per line, starting with the kind.

Instants are seconds of the machine's monotonic clock, which all processes share and no injected fault changes.

    gap       from, to                          the process was frozen
    block     from, to                          a handler blocked its event loop
    start     t, id, attempt, token, tag, wall  a handler started; `tag` is the producer's name for the job
    end       t, id, attempt, token, how        it ended: done, raised, snoozed
    entered   t, number, owner, name            by an attempt: `owner` is its token, or by the worker: ''
    left      t, number                         it was left
    claim     t, request                        a claim was sent
    claimed   t, request, [[id, token, attempts, crashes], ...]   and got these
    recovered t, request, the same              the reply was late or lost; the worker asked again and got these
    settle    t, number, [[move, id, token, delay_ms], ...]       settlements were sent
    settled   t, number, [reply, ...], sendings
    renewed   from, t, [[id, token, reply], ...]
    taken     from, t, [id, ...]                leases had expired, and the jobs were taken back
    look      t, queue                          a promoter or a standby has looked
    held      t, queue                          a promoter has looked and found that it holds the promoter lease
    do        t, number, verb, [[tag or id, argument, kind, max_attempts], ...]   a producer's or operator's request
    did       t, number, reply
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

TICK_S: Final = 0.1
STILL_S: Final = 0.5
"""A process that was due to continue after `TICK_S` but could not for this long was frozen."""


class Recorder:
    """Appends lines to this process's file. Each is a single write, so that kills truncate none and threads don't mix.

    Args:
        folder: the folder of the files.
        key: a unique name of this process. Pids are not unique: they repeat within an hour.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._file = os.open(folder / f"{key}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, *fields: Any) -> None:
        """Write one line."""
        os.write(self._file, json.dumps(fields, separators=(",", ":")).encode() + b"\n")

    def watch_for_gaps(self) -> None:
        """From now on, record intervals in which this process was frozen by a fault or starved of CPU."""
        threading.Thread(target=self._watch, name="chaos-gaps", daemon=True).start()

    def _watch(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(TICK_S)
            now = time.monotonic()
            if now - last > STILL_S:
                self.write("gap", round(last, 3), round(now, 3))
            last = now


def now() -> float:
    """The current instant, to a tenth of a millisecond."""
    return round(time.monotonic(), 4)


def read(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """Every line of every file in a folder, with the key of its process."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as lines:
            for line in lines:
                with suppress(json.JSONDecodeError):  # the last line may be truncated by a full disk
                    yield path.stem, json.loads(line)
