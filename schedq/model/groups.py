"""Groups: what batches and chains are in Redis.

A group has numbered children. Its items become jobs, at most `concurrency` at a time. Two bitmaps say which children
have ended and which of those completed; so an end counts once. When all have ended, the group does one thing: it makes
a call, or wakes a job. `transitions/shared/group_end.lua` counts, `group_next.lua` continues, and
`advance.lua` does what is left.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, cast

from schedq.errors import UsageError
from schedq.model.checks import whole_number
from schedq.model.payload import decoded
from schedq.model.placeholder import MARKER
from schedq.model.records import whole
from schedq.model.tasks import is_task_call

MOST_CONCURRENCY: Final = 1000
"""The most children of a group that are jobs at the same time."""
MOST_LINKS: Final = 1000
MOST_KEPT: Final = 10_000
"""How many groups that have ended are kept at most."""
PER_BUCKET: Final = 100
"""How many results are in one hash."""
LEAST_TTL_S: Final = 60
OPEN: Final = frozenset({"running", "cancelling"})
ENDED: Final = frozenset({"completed", "failed", "cancelled"})
DAMAGED: Final = "damaged"
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")


def checked_group_id(group_id: object) -> str:
    """Return `group_id` if it is a valid id of a batch or a chain.

    Raises:
        UsageError: it is not 1 to 40 of `A-Z a-z 0-9 _ -`.
    """
    if not isinstance(group_id, str) or not _ID.fullmatch(group_id):
        raise UsageError(f"batch id {group_id!r} must be 1 to 40 characters of A-Z a-z 0-9 _ -")
    return group_id


def checked_tolerate(tolerate: object) -> float:
    """Return `tolerate` if it is a number of children, or a share of them below 1.

    Raises:
        UsageError: it is neither.
    """
    is_number = isinstance(tolerate, (int, float)) and not isinstance(tolerate, bool)
    if not is_number or not 0 <= cast(float, tolerate) <= 2**31 or (isinstance(tolerate, float) and tolerate >= 1):
        raise UsageError(f"tolerate must be how many children may fail (5), or which share (0.01), got {tolerate!r}")
    return cast(float, tolerate)


def checked_concurrency(concurrency: object) -> int | None:
    """Return `concurrency` if it is a number from 1 to 1000, or None.

    Raises:
        UsageError: it is not.
    """
    return None if concurrency is None else whole_number("concurrency", concurrency, 1, MOST_CONCURRENCY)


@dataclass(frozen=True, slots=True)
class GroupDefinition:
    """What a group is made from.

    Attributes:
        name: the group's id.
        generation: changes at each retry; part of the children's ids.
        head, tail: what comes before and after an item in the payload of a child.
        options: the options of the children's jobs, fields and values in turn.
        is_keyed: items begin with the child's key and a space.
        is_chained: the items are calls, of which each begins when the one before has completed.
        concurrency: the most children that are jobs at the same time; None for as many as is allowed.
        tolerate: how many children may fail, or which share of them if it is less than 1.
        keeps_results: whether the results of children are kept.
        then: the call that is made if the group completes: its options as JSON, a line break, its payload; '' for none.
        otherwise: the call that is made if it fails.
        wake: the suspended job that continues at the end, or ''.
        channel: where the end is published.
        kept_ms: how long the record is kept after the end.
        close_within_ms: how long after the last page a group that is not closed fails; 0 for never.
        links: a digest of the calls of a chain.
        gates: the gates of its jobs.
        stands_for: the queue of a group of the same name, for which this one, which has no jobs, stands in this queue.
        tells: the channel of the queue where one stands for this group; its name is published there at the end.
    """

    name: str
    generation: str
    head: str = ""
    tail: str = ""
    options: tuple[str | int, ...] = ()
    is_keyed: bool = False
    is_chained: bool = False
    concurrency: int | None = None
    tolerate: float = 0
    keeps_results: bool = True
    then: str = ""
    otherwise: str = ""
    wake: str = ""
    channel: str = ""
    kept_ms: int = 604_800_000
    close_within_ms: int = 3_600_000
    links: str = ""
    gates: tuple[str, ...] = ()
    stands_for: str = ""
    tells: str = ""

    def to_fields(self) -> list[str]:
        """The fields of the record and their values, in turn; what is empty is left out."""
        given = {
            "generation": self.generation,
            "head": self.head,
            "tail": self.tail,
            "options": json.dumps([str(each) for each in self.options], ensure_ascii=False),
            "keyed": "1" if self.is_keyed else "",
            "chained": "1" if self.is_chained else "",
            "concurrency": "" if self.concurrency is None else str(self.concurrency),
            "tolerate": str(self.tolerate) if self.tolerate else "",
            "results": "1" if self.keeps_results else "",
            "marker": MARKER if self.then or self.otherwise or self.is_chained else "",
            "then": self.then,
            "otherwise": self.otherwise,
            "wake": self.wake,
            "channel": self.channel,
            "links": self.links,
            "stands_for": self.stands_for,
            "tells": self.tells,
            "kept_ms": str(self.kept_ms),
            "close_within_ms": str(self.close_within_ms) if self.close_within_ms else "",
        }
        return [word for name, value in given.items() if value for word in (name, value)]

    @property
    def digest(self) -> str:
        """The same for the same definition, whatever its generation, and the headers and the trace of its producer."""
        same = replace(self, generation="", options=(), then=_payload(self.then), otherwise=_payload(self.otherwise))
        text = json.dumps(same.to_fields(), ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _payload(call: str) -> str:
    return call.partition("\n")[2]


def call_line(options: tuple[str | int, ...], payload: str) -> str:
    """A call as it is stored in a group: its options as JSON, a line break, its payload."""
    return json.dumps([str(each) for each in options], ensure_ascii=False) + "\n" + payload


class BatchProgress(NamedTuple):
    """How far a batch or a chain is. Instants are ms on Redis's clock, 0 where they do not apply.

    Attributes:
        id: its id.
        status: running, cancelling, completed, failed or cancelled; damaged if another program or a lost write changed
            its record, so that its numbers may be wrong.
        total: how many children it has so far.
        completed: how many have completed.
        failed: how many have failed, or were cancelled or deleted.
        running: how many are jobs now: waiting in the queue or running.
        waiting: how many are not jobs yet.
        is_closed: whether all children are known.
        began_at_ms: when it began.
        ended_at_ms: when it ended.
        error: why it failed, if that is not the number of children that failed; or what is damaged.
        task: the task of its children; '' for a chain, whose calls may be of several.
        stands_for: the queue of its children, if this only stands for a batch of the same id there; else ''.
    """

    id: str
    status: Literal["running", "cancelling", "completed", "failed", "cancelled", "damaged"]
    total: int
    completed: int
    failed: int
    running: int
    waiting: int
    is_closed: bool
    began_at_ms: int
    ended_at_ms: int = 0
    error: str = ""
    task: str = ""
    stands_for: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether it is completed, failed or cancelled."""
        return self.status in ENDED

    @classmethod
    def from_fields(cls, name: str, fields: Mapping[str, str], items: int) -> BatchProgress:
        """Read a group's hash and the length of its list of items."""
        total, ended, completed = (whole(fields.get(key)) for key in ("total", "ended", "succeeded"))
        is_over, is_chain = fields.get("status") in ENDED, fields.get("chained") == "1"
        left, call = total - ended, decoded(fields.get("head", "") + "}")
        waiting = max(0, left - 1) if is_chain else min(items, total)
        if fields.get("numbered") == "1":  # what is made again counts as ended until then
            ended, left = ended - waiting, left + waiting
        return cls(
            name,
            cast(Any, fields.get("status", "")),
            total,
            completed,
            max(0, ended - completed),
            0 if is_over else max(0, left - waiting),
            left if is_over else waiting,
            fields.get("closed") == "1",
            whole(fields.get("began_at_ms")),
            whole(fields.get("ended_at_ms")),
            fields.get("error", ""),
            call["task"] if is_task_call(call) else "",
            fields.get("stands_for", ""),
        )


def damage(fields: Mapping[str, str]) -> list[str]:
    """What is damaged in the record of a group, in words."""
    status = fields.get("status")
    found = [] if status in OPEN | ENDED | {"deleted"} else [f"its status is {status!r:.40}"]
    numbers = ("total", "ended", "succeeded")
    return found + [f"{it} is {fields.get(it)!r:.40}" for it in numbers if not fields.get(it, "").isdecimal()]


def progress_of(name: str, fields: Mapping[str, str]) -> BatchProgress | None:
    """How far a group is, from its hash with the length of its list of items as `waiting`; None if there is none."""
    if not fields:
        return None
    found, wrong = BatchProgress.from_fields(name, fields, whole(fields.get("waiting"))), damage(fields)
    return found._replace(status=DAMAGED, error="; ".join(wrong)) if wrong else found


_FAILURE: Final = re.compile(r"(\d{1,15}) (\d{1,15}) (.*)", re.DOTALL)


class ChildFailure(NamedTuple):
    """One child that failed.

    Attributes:
        number: its number, from 0 on in the order in which items were added; -1 if what is stored of it is damaged.
        error: what went wrong, in short.
        args: the arguments of its call; () if they are not known.
        kwargs: the keyword arguments of its call.
        task: the name of its task; '' if it is not known.
    """

    number: int
    error: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    task: str = ""

    @classmethod
    def from_line(cls, line: str, fields: Mapping[str, str]) -> ChildFailure:
        """Read what `group_end.lua` wrote."""
        parts = _FAILURE.fullmatch(line)
        if parts is None:
            return cls(-1, f"what is stored of it is damaged: {line!r:.200}")
        raw, number, length = parts[3].encode(), int(parts[1]), int(parts[2])
        item, error = raw[:length].decode("utf-8", "replace"), raw[length:].decode("utf-8", "replace")
        if item and fields.get("keyed") == "1":
            item = item.partition(" ")[2]
        call = decoded(fields.get("head", "") + item + fields.get("tail", "")) if item else None
        return cls(number, error).of_call(call)

    def of_call(self, call: Any) -> ChildFailure:
        """The same with the task and the arguments of a payload, if it is a task call."""
        if not isinstance(call, dict):
            return self
        args, kwargs = call.get("args"), call.get("kwargs")
        return self._replace(
            task=str(call.get("task", "")),
            args=tuple(args) if isinstance(args, list) else (),
            kwargs=kwargs if isinstance(kwargs, dict) else {},
        )
