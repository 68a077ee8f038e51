"""Bugs in what wakes workers that wait, and promoters that rest."""

from __future__ import annotations

from typing import Final

from scripts.tools.explore.bug import Bug

_LOST: Final = "a claim behind a wait ∥ enqueue ∥ a lost connection"
_KEPT: Final = "a claim behind a wait ∥ a lost connection that the server keeps"
_CANCEL: Final = "a promoter rests ∥ cancel ∥ enqueue"
_PAUSE: Final = "a promoter rests ∥ pause ∥ requeue"
_ENQUEUE: Final = "a promoter rests ∥ enqueue ∥ claim"
_GATE: Final = "a promoter rests ∥ a gate is resumed ∥ cancel"
_CHILD: Final = "a promoter rests ∥ cancel of a child"
_CALL: Final = "redis.pcall('HDEL', asleep, 'channel')"

WAIT_BUGS: Final = (
    Bug(
        "the job of a claim whose reply was lost is not found",
        "recover",
        "string.sub(job[3], 1, #request + 1) == request .. '.'",
        "false",
        _LOST,
    ),
    Bug("a claim for one job wakes no worker for the others", "claim", "if has_more then set_wake() end", "", _LOST),
    Bug("a new job does not call a promoter that rests", "enqueue", _CALL, "", _ENQUEUE),
    Bug("a requeued job does not call a promoter that rests", "requeue", _CALL, "", _PAUSE),
    Bug("the end of a pause does not call a promoter that rests", "resume", _CALL, "", _PAUSE),
    Bug("a promoter rests while jobs run", "promote", " and first_end == '' and unleased == 0", "", _ENQUEUE),
    Bug("a promoter rests while jobs wait", "promote", "not (waits or ", "not (", _ENQUEUE),
    Bug("a promoter rests while there is a wake marker", "promote", "found % 2 == 0 and", "true and", _CANCEL),
    Bug("a gate that is resumed does not call a promoter that rests", "hold_gate", _CALL, "", _GATE),
    Bug("a promoter rests while a group needs attention", "promote", "is_group_due or ", "", _CHILD),
    Bug(
        "the cancellation of a child does not call a promoter that rests",
        "cancel",
        "if frees_key or job[7] or job[8] then set_wake() end",
        "",
        _CHILD,
    ),
)
