"""What is stored of a workflow's run in the hash of its job: the field `run`, memos, and what a run waits for.

A run is the life of one job of a workflow. A memo is the stored outcome of one operation. `transitions/shared/run.lua`
writes both.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from schedq.errors import SchedqError, UsageError
from schedq.model.payload import loaded

STEP: Final = "step:"
"""Prefix of the fields of memos."""
TRIES: Final = "tries:"
"""Prefix of the fields of failed tries."""
UNTIL: Final = "until:"
"""Prefix of the fields of fixed instants."""
INBOX: Final = "inbox:"
"""Prefix of the fields of messages that nothing has taken."""
UNDO: Final = "undo:"
"""Prefix of the fields of calls that undo steps: a number, which says which came first, and the call as a payload."""
KEEP: Final = "keep"
"""The kind of an operation that says that what was done until then stays done."""
UNDOING: Final = "undoing"
"""The field with the error of a run that failed and undoes what it has done; '' for one that was cancelled."""
RETURNED: Final = "returned"
"""The outcome of a receive whose branch lost a race, so its message went back to its box: it counts as not done."""
MOST_MEMOS: Final = 500
"""The most memos of a run."""
MOST_OF_FLOW: Final = 1500
"""The most memos of a run of a declared graph."""
MOST_BYTES: Final = 1_048_576
"""The most bytes of the memos of a run; a little more for those that say what went wrong."""
MOST_MESSAGE: Final = 60_000
"""The most bytes of a message's JSON text."""
RESERVED: Final = "#~:/"
"""Characters that mark numbers and branches in the names of operations."""
_LONGEST_NAME: Final = 100
_GROUP_DIGITS: Final = 24
_UNDO_NAME: Final = "~undo "
_TOPIC: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MESSAGE_ID: Final = re.compile(r"[!-~]{1,128}")
_NUMBER: Final = re.compile(r"(\w+)=(\d+)")


class RunLost(SchedqError):  # noqa: N818 - what the caller has to know, never raised to users
    """The attempt no longer holds its job, so nothing of it is recorded any more."""


class RunStopped(SchedqError):  # noqa: N818 - as RunLost
    """The job was asked to stop. What the request was to record is stored."""


class Memo(NamedTuple):
    """The stored outcome of one operation.

    Attributes:
        kind: step, sleep, receive, first, gather, call, map, keep, undo or plan.
        outcome: ok, error, timeout, cancelled or returned.
        value: what the operation returned, or what is known of its error; None for a value that was too large to keep
            once the job had completed.
        began_ms: when it began, on Redis's clock.
        ended_ms: when it was over: for a sleep its instant, for a message its arrival.
        attempt: the number of the try that led to it.
        number: says which memo came first, from 1; 0 for one that is not stored.
    """

    kind: str
    outcome: str
    value: Any
    began_ms: int
    ended_ms: int
    attempt: int
    number: int = 0

    @classmethod
    def read(cls, text: str) -> Memo | None:
        """The memo in a stored field; None if it is damaged."""
        found = loaded(text)
        if not isinstance(found, list) or len(found) < len(cls._fields) - 1:
            return None
        made = cls(*found[: len(cls._fields)])
        made = made if isinstance(made.number, int) else made._replace(number=0)
        is_sound = all(isinstance(word, str) for word in made[:2]) and all(isinstance(at, int) for at in made[3:])
        return made if is_sound else None


class RunWait(NamedTuple):
    """What one branch of a suspended run waits for.

    Attributes:
        kind: sleep, receive, retry, call or map.
        name: the operation.
        until_ms: when the wait ends, on Redis's clock; None for never.
        topic: of the messages that end it, or ''.
        group: whose end ends it, or ''.
    """

    kind: str
    name: str
    until_ms: int | None
    topic: str = ""
    group: str = ""

    @classmethod
    def read(cls, text: str | None) -> tuple[RunWait, ...]:
        """The waits in the field `waits`; damaged ones are left out."""
        found = loaded(text)
        entries = found if isinstance(found, list) else []
        return tuple(
            cls(*entry) for entry in entries if isinstance(entry, list) and 3 <= len(entry) <= len(cls._fields)
        )


class Run(NamedTuple):
    """The field `run`; see `transitions/shared/run.lua`.

    Attributes:
        version: of the workflow, when the run began.
        began_ms: when it began, or last started over.
        deadline_ms: when it has taken too long; None for never.
        steps: how many memos it has.
        bytes: of its memos.
        life: how often it has started over.
        is_void: its memos are of an earlier life and must be removed before anything else.
        requeued: how often its job was requeued.
        undos: how many of its steps are to be undone if it does not complete.
        undoing: whether it only undoes them any more: 0 no, 1 because it failed, 2 because it was cancelled.
        left: it ended although some are still to be undone.
        is_flow: it runs a declared graph.
    """

    version: int
    began_ms: int
    deadline_ms: int | None = None
    steps: int = 0
    bytes: int = 0
    life: int = 0
    is_void: bool = False
    requeued: int = 0
    undos: int = 0
    undoing: int = 0
    left: bool = False
    is_flow: bool = False

    @classmethod
    def read(cls, text: str) -> Run:
        """Read the field; what is missing or damaged reads as 0."""
        found = {name: int(number) for name, number in _NUMBER.findall(text)}
        return cls(
            found.get("v", 0),
            found.get("began", 0),
            found.get("deadline") or None,
            found.get("steps", 0),
            found.get("bytes", 0),
            found.get("life", 0),
            bool(found.get("void")),
            found.get("requeued", 0),
            found.get("undos", 0),
            found.get("undoing", 0),
            bool(found.get("left")),
            bool(found.get("flow")),
        )


def beginning(version: int, began_ms: int, timeout_ms: int | None, *, is_flow: bool = False) -> str:
    """The field `run` of a run of which nothing is recorded yet."""
    text = f"v={version} began={began_ms}" + (" flow=1" if is_flow else "")
    return text if timeout_ms is None else f"{text} timeout={timeout_ms} deadline={began_ms + timeout_ms}"


def undo_name(name: str) -> str:
    """The name of the operation that undoes a step: `charge` → `~undo charge`, `1.2/charge` → `1.2/~undo charge`."""
    path, slash, base = name.rpartition("/")
    return f"{path}{slash}{_UNDO_NAME}{base}"


def undone(name: str) -> str:
    """The step that an operation undoes; '' for any other operation."""
    path, slash, base = name.rpartition("/")
    return f"{path}{slash}{base.removeprefix(_UNDO_NAME)}" if base.startswith(_UNDO_NAME) else ""


def without_undos(run: str) -> str:
    """The field `run` of a run that has nothing to undo."""
    return re.sub(r" undos=\d+", "", run)


def open_undos(fields: Mapping[str, str]) -> list[tuple[str, str]]:
    """The steps of a run that are to be undone, the newest first, each with the call that does it, as a payload."""
    if not Run.read(fields.get("run", "")).undos:
        return []
    memos = {field.removeprefix(STEP): text for field, text in fields.items() if field.startswith(STEP)}
    keeps = (Memo.read(text) for text in memos.values() if text.startswith('["keep"'))
    kept = max((memo.number for memo in keeps if memo is not None), default=0)
    found: list[tuple[int, str, str]] = []
    for field, text in fields.items():
        number, _, call = text.partition(" ") if field.startswith(UNDO) else ("", "", "")
        name = field.removeprefix(UNDO)
        memo = Memo.read(memos.get(undo_name(name), ""))
        if number.isdecimal() and int(number) > kept and (memo is None or memo.outcome != "ok"):
            found.append((int(number), name, call))
    return [(name, call) for _, name, call in sorted(found, reverse=True)]


def group_of(job_id: str, run: Run, name: str) -> str:
    """The id of the group whose jobs do an operation's work."""
    return f"run-{hashlib.sha256(f'{job_id}/{run.began_ms}/{run.life}/{name}'.encode()).hexdigest()[:_GROUP_DIGITS]}"


def checked_operation(name: object) -> str:
    """The name of an operation that the application gave it.

    Raises:
        UsageError: it is not 1 to 100 printable characters, or has one that marks numbers and branches.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
        raise UsageError(
            f"the name of an operation must be 1 to {_LONGEST_NAME} printable characters, got {name!r:.120}"
        )
    if found := [each for each in RESERVED if each in name]:
        raise UsageError(f"the name of an operation may not contain {found[0]!r}, got {name!r}")
    return name


def operation_name(operation: str, task: str) -> str:
    """The name of an operation on this task; characters that the name of an operation can't have are left out."""
    kept = "".join(each for each in task if each not in RESERVED)
    return f"{operation} {kept}".strip()[:_LONGEST_NAME]


def checked_topic(topic: object) -> str:
    """Return `topic` if it is valid.

    Raises:
        UsageError: it is not 1 to 64 of `A-Z a-z 0-9 _ . -`.
    """
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
        raise UsageError(f"topic {topic!r:.80} must be 1 to 64 characters of A-Z a-z 0-9 _ . -")
    return topic


def checked_message_id(message_id: object) -> str:
    """Return the id of a message if it is valid.

    Raises:
        UsageError: it is not 1 to 128 printable ASCII characters without spaces.
    """
    if not isinstance(message_id, str) or not _MESSAGE_ID.fullmatch(message_id):
        raise UsageError(
            f"id {message_id!r:.160} of a message must be 1 to 128 printable ASCII characters without spaces"
        )
    return message_id
