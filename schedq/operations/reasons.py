"""Why a job is not running: the one table of reasons, from which README's is made. The first that holds is it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from schedq.ids import made_at_ms
from schedq.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, PENDING, PLACES, PROCESSING
from schedq.operations import telling
from schedq.operations.sight import Sight
from schedq.operations.telling import Told


@dataclass(frozen=True, slots=True)
class Reason:
    """One row of the table.

    Attributes:
        name: the word that programs go by.
        holds: whether it is one for this job.
        tell: says so; its docstring is the row of README.
        is_known: something is there of the job.
    """

    name: str
    holds: Callable[[Sight], bool]
    tell: Callable[[Sight], Told]
    is_known: bool = True

    @property
    def means(self) -> str:
        """What it says, in general."""
        return inspect.getdoc(self.tell) or ""


# -- the table


def _at(place: str) -> Callable[[Sight], bool]:
    return lambda seen: seen.place == place


def _waits(seen: Sight, move: str) -> bool:
    """It is delayed, not due yet, and came there by this move of a worker or the reclaimer; '' for any."""
    waits = seen.place == DELAYED and not seen.is_due
    return waits and (not move or seen.fields.get("settled_move") == move)


def _has_no_record(seen: Sight) -> bool:
    return seen.kind == "none"


REASONS: Final = (
    Reason("completed", _at(COMPLETED), telling.completed),
    Reason("failed", _at(FAILED), telling.failed),
    Reason("cancelled", _at(CANCELLED), telling.cancelled),
    Reason(
        "broken",
        lambda seen: seen.record is None and seen.note is not None and not seen.entry,
        telling.broken,
    ),
    Reason(
        "wrong_type",
        lambda seen: seen.record is None and not _has_no_record(seen),
        telling.wrong_type,
    ),
    Reason(
        "no_data",
        lambda seen: _has_no_record(seen) and bool(seen.entry),
        telling.no_data,
    ),
    Reason("expired", lambda seen: bool(seen.history), telling.expired),
    Reason(
        "gone",
        lambda seen: _has_no_record(seen) and made_at_ms(seen.id) is not None,
        telling.gone,
        is_known=False,
    ),
    Reason("unknown", _has_no_record, telling.unknown, is_known=False),
    Reason(
        "lease_expired",
        lambda seen: seen.place == PROCESSING and seen.lease_ms is not None and seen.lease_ms <= seen.now_ms,
        telling.lease_expired,
    ),
    Reason(
        "stop_asked",
        lambda seen: seen.place == PROCESSING and bool(seen.instant("stop")),
        telling.stop_asked,
    ),
    Reason(
        "unleased",
        lambda seen: seen.place == PROCESSING and seen.lease_ms is None,
        telling.unleased,
    ),
    Reason("running", _at(PROCESSING), telling.running),
    Reason(
        "held_back",
        lambda seen: seen.is_suspect and _waits(seen, "" if seen.is_passed_over else "reclaim"),
        telling.held_back,
    ),
    Reason("retry", lambda seen: _waits(seen, "retry"), telling.retry),
    Reason(
        "unknown_task",
        lambda seen: _waits(seen, "snooze") and bool(seen.instant("unknown_since_ms")),
        telling.unknown_task,
    ),
    Reason("snoozed", lambda seen: _waits(seen, "snooze"), telling.snoozed),
    Reason("due_later", lambda seen: _waits(seen, ""), telling.due_later),
    Reason(
        "paused",
        lambda seen: seen.is_due and seen.paused_since_ms is not None,
        telling.paused,
    ),
    Reason(
        "promoter_behind",
        lambda seen: seen.place == DELAYED and bool(seen.promoter),
        telling.promoter_behind,
    ),
    Reason("no_promoter", _at(DELAYED), telling.no_promoter),
    Reason(
        "no_worker",
        lambda seen: seen.place == PENDING and not seen.alive and not seen.works_unseen,
        telling.no_worker,
    ),
    Reason(
        "all_stopping",
        lambda seen: seen.place == PENDING and bool(seen.crew) and not seen.staying,
        telling.all_stopping,
    ),
    Reason(
        "no_task",
        lambda seen: seen.place == PENDING and bool(seen.crew) and not seen.able,
        telling.no_task,
    ),
    Reason(
        "all_stuck",
        lambda seen: seen.place == PENDING and seen.are_stuck,
        telling.all_stuck,
    ),
    Reason(
        "one_at_a_time",
        lambda seen: seen.place == PENDING and seen.is_suspect and 0 < len(seen.able) <= seen.suspects,
        telling.one_at_a_time,
    ),
    Reason(
        "ahead",
        lambda seen: seen.place == PENDING and seen.ahead != 0,
        telling.behind_others,
    ),
    Reason(
        "busy",
        lambda seen: seen.place == PENDING and seen.is_busy,
        telling.busy,
    ),
    Reason("next", _at(PENDING), telling.next_in_line),
    Reason("cut_short", lambda seen: seen.lease_ms is not None, telling.cut_short),
    Reason("orphan", lambda seen: seen.status in PLACES, telling.orphan),
    Reason("unlisted", lambda _: True, telling.unlisted),
)
"""The first one that holds is the reason."""
