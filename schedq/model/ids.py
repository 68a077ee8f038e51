"""Random ids: of jobs, which sort by creation, and of requests."""

from __future__ import annotations

import os
import threading
from typing import Final

from schedq.model.times import LAST_INSTANT_MS, wall_ns

_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuv"
_PAIRS: Final = tuple(one + other for one in _ALPHABET for other in _ALPHABET)
_DIGITS: Final = bytes(ord(_ALPHABET[byte & 31]) for byte in range(256))
"""Turns random bytes into random digits, of 5 bits each."""
_TIME: Final = 13
_NOISE: Final = 13
_FIRST_MS: Final = 1_577_836_800_000
"""The year 2020; a timestamp before it means that schedq did not create the id."""
_BLOCK: Final = 64 * _NOISE
_lock = threading.Lock()
_last_tick = 0
_noise = ""  # random digits, generated for many ids at once
_pid = os.getpid()  # the process that generated them; servers written in C may fork without Python's hooks
os.register_at_fork(after_in_child=lambda: globals().update(_lock=threading.Lock(), _noise=""))


def new_ids(count: int = 1) -> list[str]:
    """New ids of 26 characters: the time and a counter (so they sort by creation), then 65 random bits."""
    global _last_tick, _noise, _pid
    needed = _NOISE * count
    with _lock:
        if _pid != os.getpid():
            _noise, _pid = "", os.getpid()
        first = max(_last_tick + 1, (wall_ns() // 1_000_000) << 15)
        _last_tick = first + count - 1
        if len(_noise) < needed:
            _noise += os.urandom(max(_BLOCK, needed)).translate(_DIGITS).decode()
        noise, _noise = _noise[:needed], _noise[needed:]
    if count == 1:
        return [_sortable(first) + noise]
    return [
        time + noise[at : at + _NOISE]
        for time, at in zip(_consecutive(first, count), range(0, needed, _NOISE), strict=True)
    ]


def _consecutive(first: int, count: int) -> list[str]:
    """The digits of `count` consecutive ticks; most share all but the last two digits."""
    found: list[str] = []
    tick, end = first, first + count
    while tick < end:
        stop = min(end, (tick | 1023) + 1)
        head = _sortable(tick)[:-2]
        found += [head + last for last in _PAIRS[tick & 1023 : (stop - 1 & 1023) + 1]]
        tick = stop
    return found


def _sortable(tick: int) -> str:
    """13 digits, of 5 bits each."""
    two = _PAIRS
    return (
        f"{_ALPHABET[tick >> 60]}{two[tick >> 50 & 1023]}{two[tick >> 40 & 1023]}{two[tick >> 30 & 1023]}"
        f"{two[tick >> 20 & 1023]}{two[tick >> 10 & 1023]}{two[tick & 1023]}"
    )


def made_at_ms(job_id: str) -> int | None:
    """When schedq created an id, ms since the epoch on its producer's clock; None if it did not."""
    if len(job_id) != _TIME + _NOISE or not set(job_id) <= set(_ALPHABET):
        return None
    made = int(job_id[:_TIME], 32) >> 15
    return made if _FIRST_MS <= made < LAST_INSTANT_MS else None


def new_request() -> str:
    """A new random id for one request, by which a repetition is recognized; 64 bits as hex."""
    return os.urandom(8).hex()
