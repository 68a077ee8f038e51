"""Bugs in what is done for runs that wait for jobs of another queue."""

from __future__ import annotations

from typing import Final

from scripts.tools.explore.bug import Bug

_CALL: Final = "other queues: a call ∥ its job ends ∥ carriers"
_CANCEL: Final = "other queues: cancel of the run ∥ carrier"
_DIED: Final = "other queues: cancel of a run whose attempt died ∥ carrier"
_ZOMBIE: Final = "other queues: zombie of a cancelled run ∥ carrier"
_LATE: Final = "other queues: zombie ∥ reclaim ∥ carrier"
_DELETE: Final = "other queues: delete of the batch ∥ carrier"
_FAILOVER: Final = "other queues: failover of the jobs' queue"
_LOOK: Final = "stand_ins.look"
_STATUS: Final = 'status in (*ENDED, "", "filling", DAMAGED)'

OTHER_QUEUE_BUGS: Final = (
    Bug("stand-ins are not returned", "advance", "{name, found[2], word, requeued or '0', now}", "nil", _CALL),
    Bug("a run that is over works", "advance", "word = 'over'", "word = 'works'", _DIED),
    Bug("a run that was cancelled works", "advance", " or run == 'completed' or run == 'cancelled'", "", _DIED),
    Bug("a suspended run works", "advance", "'waits' or 'rests'", "'works'", _DELETE),
    Bug("a run that works is over", "advance", "and 'failed' or 'works'", "and 'failed' or 'over'", _CALL),
    Bug("a suspended run is over", "advance", "'waits' or 'rests'", "'over'", _CALL),
    Bug("a stand-in is a group like others", "advance", "if found[2] and status and", "if nil and", _CALL),
    Bug(
        "a stand-in is looked at once",
        "advance",
        "math.max(LOOK_AGAIN, word",
        "math.max(1e9, word",
        _CALL,
    ),
    Bug(
        "a run is not woken",
        "wake_runs",
        "if type(run) == 'string' and wake_run(",
        "if false and wake_run(",
        _CALL,
    ),
    Bug("what an attempt makes needs no claim", "fill_group", "if run ~= '' then", "if false then", _LATE),
    Bug(
        "nothing is called off",
        _LOOK,
        "for each in called_off.items()]) if called_off else ()",
        "for each in called_off.items()]) if False else ()",
        _DIED,
    ),
    Bug(
        "what is still filled is not called off",
        "stand_ins.calls_off",
        'status in ("running", "filling")',
        'status == "running"',
        _DIED,
    ),
    Bug("no empty group is made", _LOOK, "if it.run in (_OVER, _FAILED) and not status]", "if False]", _ZOMBIE),
    Bug(
        "the stand-in goes before the group has ended",
        _LOOK,
        "it.run == _OVER and status in ENDED]",
        "it.run == _OVER]",
        _CANCEL,
    ),
    Bug("the stand-in of a group that ended stays", _LOOK, "it.run == _OVER and status in ENDED]", "False]", _CANCEL),
    Bug("a run sleeps although its jobs have ended", _LOOK, _STATUS, 'status in ("", "filling")', _CALL),
    Bug("a run waits for a group that is gone", _LOOK, _STATUS, 'status in (*ENDED, "filling")', _DELETE),
    Bug("a run waits for a group that is not whole", _LOOK, _STATUS, 'status in (*ENDED, "")', _FAILOVER),
    Bug(
        "a group that no run needs is kept",
        _LOOK,
        "[groups.look_at(queue, done)] if done else []",
        "[]",
        _CANCEL,
    ),
)
