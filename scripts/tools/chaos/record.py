"""What the processes of a run write down, each into a file of its own: a JSON list per line, the kind first.

Instants are seconds of the machine's monotonic clock, which all its processes share and no fault of ours moves.

    gap       from, to                          the process stood still
    block     from, to                          a handler stopped its event loop
    start     t, id, attempt, token, tag, wall  a handler began; `tag` is how the producer calls the job
    end       t, id, attempt, token, how        it ended: done, raised, snoozed
    claim     t, request                        a claim is sent
    claimed   t, request, [[id, token, attempts, crashes], ...]   that got these
    recovered t, request, the same              answered late or never, it had got these when asked again
    settle    t, number, [[move, id, token, delay_ms], ...]       ends of attempts are sent
    settled   t, number, [answer, ...], sendings
    renewed   from, t, [[id, token, answer], ...]
    taken     from, t, [id, ...]                leases had ended, and the jobs were taken back
    look      t, queue                          a promoter or one that stands by has looked
    held      t, queue                          a promoter has looked, and found that it held the promoter lease
    do        t, number, verb, [[tag or id, argument, kind, max_attempts], ...]   a producer's or operator's request
    did       t, number, answer
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
"""A process that wanted to go on after `TICK_S` and could not for this long stood still."""


class Recorder:
    """Appends lines to the file of this process; each is one write, so that a kill cuts none and threads do not mix.

    Args:
        folder: where the files are.
        key: names this process among all there ever were. Its pid does not: in an hour they begin anew.
    """

    def __init__(self, folder: Path, key: str) -> None:
        self._file = os.open(folder / f"{key}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, *fields: Any) -> None:
        """Write one line."""
        os.write(self._file, json.dumps(fields, separators=(",", ":")).encode() + b"\n")

    def watch_for_gaps(self) -> None:
        """From now on, write down when this process stood still: frozen by us, or starved by others."""
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
    """The instant, to the tenth of a millisecond."""
    return round(time.monotonic(), 4)


def read(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """Every line of every file of a folder, with the key of its process."""
    for path in sorted(folder.glob("*.jsonl")):
        with path.open("rb") as lines:
            for line in lines:
                with suppress(json.JSONDecodeError):  # the last one may be cut short by a full disk
                    yield path.stem, json.loads(line)
