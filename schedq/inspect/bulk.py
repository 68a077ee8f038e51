"""Actions on many jobs at once: jobs given by id, jobs that match a filter, or all jobs of a queue.

Each action writes one entry to the audit log.
"""

from __future__ import annotations

import getpass
import itertools
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from schedq.errors import UsageError
from schedq.inspect.search import MOST_FOUND, SCANNED_AT_ONCE, Cursor, Filter, Scanner, checked_state
from schedq.model.checks import whole_number
from schedq.model.expiry import ExpiryError
from schedq.model.ids import new_request
from schedq.model.keys import checked_id
from schedq.model.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, PENDING, PROCESSING
from schedq.model.settings import Settings
from schedq.transitions import Argument, Binding, Operation, RoundTrips, groups, unwrap
from schedq.transitions.cancel import cancel
from schedq.transitions.requeue import requeue_these
from schedq.transitions.reschedule import one_time, reschedule

_AUDIT: Final = Binding("audit", "request", "act", "count", "note", "who")
_DELETE: Final = Binding("delete", "state", "request", "position", "ids")
_PURGE: Final = Binding("purge", "source", "before", "offset", "length", "kind")
ACTIONS: Final = {
    "requeue": (FAILED, CANCELLED),
    "cancel": (PENDING, DELAYED, PROCESSING),
    "run_now": (DELAYED,),
    "reschedule": (DELAYED,),
    "delete": (PENDING, DELAYED, COMPLETED, FAILED, CANCELLED),
}
"""The actions, and the states of the jobs that each applies to."""
_TOGETHER: Final = 20
"""How many requests about one job each are sent together; other clients wait for all of them."""
_MOST_NAMED: Final = 10
_PAGE: Final = 250
"""The most entries that one request of a purge looks at."""


@dataclass(frozen=True, slots=True)
class Acted:
    """The result of an action on many jobs.

    Attributes:
        looked: how many jobs were looked at.
        matched: how many of them matched.
        done: how many were acted on. A running job that is cancelled counts once it has been asked to stop.
        refused: how many had left the state before the action reached them, or would expire before their new time.
    """

    looked: int = 0
    matched: int = 0
    done: int = 0
    refused: int = 0


OnActed = Callable[[Acted], object]


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """A checked request for an action on many jobs.

    Attributes:
        action: one of `ACTIONS`.
        mode: for reschedule, as `enqueue.when` returns it.
        ms: likewise.
        who: the name in the audit log; None for this process's user and host.
    """

    action: str
    mode: str
    ms: int
    who: str | None = None

    @classmethod
    def of(cls, action: object, delay: object, run_at: object, who: str | None = None) -> BulkRequest:
        """Check the arguments of an action.

        Raises:
            UsageError: there is no such action, it needs a time, or it takes none.
        """
        if not isinstance(action, str) or action not in ACTIONS:
            raise UsageError(f"action must be one of {', '.join(ACTIONS)}, got {action!r}")
        if action == "reschedule":
            return cls(action, *one_time(delay, run_at), who)
        if delay is not None or run_at is not None:
            raise UsageError(f"delay and run_at are for reschedule, not for {action}")
        return cls(action, "in", 0, who)


class BulkAction:
    """One action on many jobs: `steps` does it, and `note` logs what was done, however it ended.

    Attributes:
        acted: the result so far.
    """

    def __init__(self, queue: Settings, request: BulkRequest, subject: str, progress: OnActed | None = None) -> None:
        self.acted = Acted()
        self._queue = queue
        self._quiet = replace(queue, log_size=0)  # one log entry for all jobs, not one for each
        self._request = request
        self._subject = subject
        self._progress = progress
        self._request_id = new_request()
        self._deletions = (f"{self._request_id}.{number}" for number in itertools.count(1))

    def note(self) -> Operation[int]:
        """Write the entry of the audit log."""
        text = f"{self._subject}: {self.acted.done} done, {self.acted.refused} refused"
        return note(self._queue, self._request_id, self._request.action, self.acted.done, text, self._request.who)

    def _count(self, *, looked: int = 0, matched: int = 0, done: int = 0, refused: int = 0) -> None:
        old = self.acted
        self.acted = Acted(old.looked + looked, old.matched + matched, old.done + done, old.refused + refused)
        if self._progress is not None:
            self._progress(self.acted)

    def _do(self, job_ids: Sequence[str], state: str, position: int | None) -> RoundTrips[int]:
        """Act on these jobs and update the counts; returns how many were acted on."""
        done = 0
        for first in range(0, len(job_ids), MOST_FOUND):
            some = job_ids[first : first + MOST_FOUND]
            results = yield from self._do_some(some, state, position)
            done += sum(results)
            self._count(done=sum(results), refused=len(results) - sum(results))
        return done

    def _do_some(self, job_ids: Sequence[str], state: str, position: int | None) -> RoundTrips[list[bool]]:
        if self._request.action == "requeue":
            return (yield from requeue_these(self._quiet, job_ids))
        if self._request.action == "delete":
            return (yield from self._delete(job_ids, state, position))
        results: list[bool] = []
        for first in range(0, len(job_ids), _TOGETHER):
            replies = yield [self._one(job_id, state) for job_id in job_ids[first : first + _TOGETHER]]
            results += [not isinstance(reply, ExpiryError) and unwrap(reply) not in (False, "no") for reply in replies]
        return results

    def _one(self, job_id: str, state: str) -> Operation[Any]:
        if self._request.action == "cancel":
            return cancel(self._quiet, job_id, state)
        return reschedule(self._quiet, job_id, self._request.mode, self._request.ms)

    def _delete(self, job_ids: Sequence[str], state: str, position: int | None) -> RoundTrips[list[bool]]:
        left = list(job_ids)
        results: list[bool] = []
        while left:
            (reply,) = yield [delete(self._queue, next(self._deletions), left, state, position)]
            words = unwrap(reply)
            for job_id, word in zip(left, words, strict=False):
                results.append((yield from self._delete_far(job_id, state)) if word == "FAR" else word == "yes")
            left = left[len(words) :]
        return results

    def _delete_far(self, job_id: str, state: str) -> RoundTrips[bool]:
        """Find a job in a long list, and delete it."""
        for place in [state] if state else [PENDING, FAILED, COMPLETED, CANCELLED]:
            (size,) = yield [Operation("delete", None, (), ("LLEN", getattr(self._queue.keys, place)), int)]
            scanner = Scanner(self._queue, Filter(), Cursor(place), is_newest_first=False, carry="id")
            position = yield from scanner.position_of([job_id], unwrap(size))
            if position is not None:
                (reply,) = yield [delete(self._queue, next(self._deletions), [job_id], place, position)]
                return bool(unwrap(reply) == ["yes"])
        return False


class ActionOnIds(BulkAction):
    """An action on jobs given by their ids."""

    def __init__(self, queue: Settings, request: BulkRequest, job_ids: Sequence[str], progress: OnActed | None) -> None:
        self._job_ids = [checked_id(job_id) for job_id in dict.fromkeys(job_ids)]
        more = len(self._job_ids) - _MOST_NAMED
        named = ", ".join(self._job_ids[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        super().__init__(queue, request, f"jobs {named}", progress)

    def steps(self) -> RoundTrips[Acted]:
        """Act on all of them."""
        self._count(looked=len(self._job_ids), matched=len(self._job_ids))
        yield from self._do(self._job_ids, "", None)
        return self.acted


class ActionOnMatching(BulkAction):
    """An action on the jobs of a state that match a filter, oldest first."""

    def __init__(
        self,
        queue: Settings,
        request: BulkRequest,
        state: str,
        wanted: Filter,
        *,
        limit: int | None,
        dry_run: bool,
        progress: OnActed | None,
    ) -> None:
        checked_state(state, ACTIONS[request.action])
        if limit is not None:
            whole_number("limit", limit, 1)
        subject = ", ".join(filter(None, (f"{state} jobs", wanted.says(), f"at most {limit}" if limit else "")))
        super().__init__(queue, request, subject, progress)
        self._state = state
        self._scanner = Scanner(queue, wanted, Cursor(state), is_newest_first=False, carry="id")
        self._limit = limit
        self._is_dry = dry_run

    def steps(self) -> RoundTrips[Acted]:
        """Scan the state and act on the jobs that match.

        A list is scanned up to its length at the beginning, so jobs that arrive later are left alone. Each job is
        acted on once.
        """
        scanner, seen, kept = self._scanner, set[str](), list[str]()
        left: int | None = None
        restarts = 0
        while scanner.cursor is not None and (left is None or left > 0) and self._room() > 0:
            looked, found = yield from scanner.scan(
                SCANNED_AT_ONCE if left is None else min(SCANNED_AT_ONCE, left), self._room()
            )
            if self._state != DELAYED:
                left = (scanner.size if left is None or scanner.restarts > restarts else left) - looked
                restarts = scanner.restarts
            ids = [job_id for job_id, _, _ in found if job_id not in seen]
            seen.update(ids)
            self._count(looked=looked - len(found) + len(ids), matched=len(ids))
            if self._request.action == "run_now":
                kept += ids  # each becomes the next in line, so the order is reversed
            elif ids and not self._is_dry:
                scanner.shift((yield from self._do(ids, self._state, scanner.began)))
        if not self._is_dry:
            for end in range(len(kept), 0, -MOST_FOUND):
                yield from self._do(kept[max(0, end - MOST_FOUND) : end][::-1], self._state, None)
        return self.acted

    def _room(self) -> int:
        return MOST_FOUND if self._limit is None else min(MOST_FOUND, self._limit - self.acted.matched)


class TaskCancellation:
    """The cancellation of all jobs of one task: `steps` does it, and `note` logs it, however it ended."""

    def __init__(self, queue: Settings, task: str, *, running: bool, who: str | None) -> None:
        request, wanted = BulkRequest.of("cancel", None, None), Filter.of(task)
        states = (DELAYED, PENDING, PROCESSING) if running else (DELAYED, PENDING)
        self._actions = [
            ActionOnMatching(queue, request, state, wanted, limit=None, dry_run=False, progress=None)
            for state in states
        ]
        self._queue, self._subject, self._who, self._request = queue, f"task {task}", who, new_request()

    @property
    def done(self) -> int:
        """How many jobs were cancelled, or asked to stop."""
        return sum(action.acted.done for action in self._actions)

    def steps(self) -> RoundTrips[int]:
        """Cancel them, in the order in which jobs move, so that none escapes."""
        for action in self._actions:
            yield from action.steps()
        return self.done

    def note(self) -> Operation[int]:
        """Write the entry of the audit log."""
        return note(self._queue, self._request, "cancel", self.done, f"{self._subject}: {self.done} done", self._who)


def note(queue: Settings, request: str, action: str, count: int, text: str, who: str | None) -> Operation[int]:
    """Write one entry to the audit log about an operator's action.

    Args:
        queue: the queue.
        request: a new id, by which a repeated request is recognized.
        action: what was done.
        count: the number of jobs.
        text: details.
        who: the operator's name for the log; None for this process's user and host.
    """
    return Operation(
        "note", *_AUDIT(queue, request=request, act=action, count=count, note=text, who=who or _user()), int
    )


def delete(
    queue: Settings, request: str, job_ids: Sequence[str], state: str = "", position: int | None = None
) -> Operation[list[str]]:
    """Delete jobs that are not running; returns yes, no or FAR for each, fewer words than jobs if they were too many.

    Args:
        queue: the queue.
        request: a new id, by which a repeated request is recognized.
        job_ids: the jobs.
        state: the state they must be in; '' for any.
        position: about how many entries come before them, counted from the old end of that state's list.
    """
    near: Argument = "" if position is None else position
    return Operation("delete", *_DELETE(queue, state=state, request=request, position=near, ids=job_ids), list)


def _user() -> str:
    """The user of this process and its host."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number that has no name
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


class Purge:
    """One purge: `steps` does it, and `note` logs what was deleted, however it ended.

    Attributes:
        gone: jobs deleted so far.
    """

    def __init__(self, queue: Settings, who: str | None = None) -> None:
        self.gone = 0
        self._queue = queue
        self._who = who
        self._request = new_request()
        self._began: Argument = ""

    def note(self) -> Operation[int]:
        """Write the entry of the audit log."""
        text = f"the whole queue: {self.gone} deleted"
        return note(self._queue, self._request, "purge", self.gone, text, self._who)

    def steps(self) -> RoundTrips[int]:
        """Delete every job that existed when this began; returns how many.

        Batches come first, so that they make no more jobs. Lists are emptied in the order in which jobs move. Those of
        live jobs are emptied again until nothing is left, because a running job may have come back.
        """
        keys = self._queue.keys
        live = ((keys.held, "zset"), (keys.delayed, "zset"), (keys.pending, "pending"), (keys.processing, "list"))
        ended = ((keys.completed, "list"), (keys.failed, "list"), (keys.cancelled, "list"), (keys.broken, "notes"))
        yield from self._empty(live[:1])  # its reply says when this began
        yield from groups.drop_all(self._queue, self._began)
        for _ in range(3):
            before = self.gone
            yield from self._empty(live)
            if self.gone == before:
                break
        yield from self._empty(ended)
        return self.gone

    def _empty(self, places: Sequence[tuple[str, str]]) -> RoundTrips[None]:
        for place, kind in places:
            offset, has_more = 0, True
            while has_more:
                (reply,) = yield [purge_page(self._queue, place, kind, self._began, offset)]
                self._began, offset, gone, has_more = unwrap(reply)
                self.gone += gone


def purge_page(queue: Settings, place: str, kind: str, began: Argument, offset: int) -> Operation[list[Any]]:
    """Delete one page of a list or zset; see `purge.lua`."""
    return Operation("purge", *_PURGE(queue, source=place, before=began, offset=offset, length=_PAGE, kind=kind), list)
