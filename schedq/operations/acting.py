"""What an operator does to many jobs at once: chosen by id, or by a filter. One line of the log for each act."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from schedq import lua
from schedq.errors import UsageError
from schedq.ids import new_request
from schedq.keys import checked_id
from schedq.lifecycle import CANCELLED, COMPLETED, DELAYED, FAILED, PENDING, PROCESSING
from schedq.operations import Flow, Operation, firm
from schedq.operations.control import cancel, one_time, requeue_these, reschedule
from schedq.operations.filters import Filter, Spot, checked_state
from schedq.operations.finding import MOST_FOUND, STRETCH, Walk
from schedq.settings import Settings

ACTIONS: Final = {
    "requeue": (FAILED, CANCELLED),
    "cancel": (PENDING, DELAYED, PROCESSING),
    "run_now": (DELAYED,),
    "reschedule": (DELAYED,),
    "delete": (PENDING, DELAYED, COMPLETED, FAILED, CANCELLED),
}
"""What can be done, and to jobs of which states."""
_TOGETHER: Final = 20
"""Requests about one job each that go out together: they keep others waiting together, too."""
_MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Acted:
    """What an act came to.

    Attributes:
        looked: jobs that were looked at.
        matched: jobs that were meant.
        done: jobs it was done to; of running ones that are cancelled, jobs that were asked to stop.
        refused: jobs that had gone, or moved on, when it was to be done.
    """

    looked: int = 0
    matched: int = 0
    done: int = 0
    refused: int = 0


Progress = Callable[[Acted], object]


@dataclass(frozen=True, slots=True)
class Wish:
    """An action, checked.

    Attributes:
        action: one of `ACTIONS`.
        mode: for reschedule, as `preparing.when` has it.
        ms: likewise.
        who: on whose behalf, for the log.
    """

    action: str
    mode: str
    ms: int
    who: str

    @classmethod
    def of(cls, action: object, delay: object, run_at: object, who: str | None = None) -> Wish:
        """An action as callers say it; on behalf of this process's user, unless they name another.

        Raises:
            UsageError: there is no such action, or it lacks a time, or takes none.
        """
        if not isinstance(action, str) or action not in ACTIONS:
            raise UsageError(f"action must be one of {', '.join(ACTIONS)}, got {action!r}")
        who = who or _user()
        if action == "reschedule":
            return cls(action, *one_time(delay, run_at), who)
        if delay is not None or run_at is not None:
            raise UsageError(f"delay and run_at are for reschedule, not for {action}")
        return cls(action, "in", 0, who)


class Act:
    """One act on many jobs: `steps` does it, and `note` puts on record what was done, whatever ended it.

    Attributes:
        acted: what it has come to so far.
    """

    def __init__(self, queue: Settings, wish: Wish, meant: str, progress: Progress | None = None) -> None:
        self.acted = Acted()
        self._queue = queue
        self._quiet = replace(queue, log_size=0)  # one line for all, not one for each
        self._wish = wish
        self._meant = meant
        self._progress = progress
        self._request = new_request()
        self._sent = 0

    def note(self) -> Operation[int]:
        """The line of the log."""
        acted = self.acted
        said = f"{self._meant}: {acted.done} done, {acted.refused} refused"
        return note(self._queue, self._request, self._wish.action, acted.done, said, self._wish.who)

    def _count(self, *, looked: int = 0, matched: int = 0, done: int = 0, refused: int = 0) -> None:
        old = self.acted
        self.acted = Acted(old.looked + looked, old.matched + matched, old.done + done, old.refused + refused)
        if self._progress is not None:
            self._progress(self.acted)

    def _do(self, job_ids: Sequence[str], state: str, position: int | None) -> Flow[int]:
        """Do it to these, and count; answers to how many it was done."""
        done = 0
        for first in range(0, len(job_ids), MOST_FOUND):
            some = job_ids[first : first + MOST_FOUND]
            answers = yield from self._do_some(some, state, position)
            done += sum(answers)
            self._count(done=sum(answers), refused=len(answers) - sum(answers))
        return done

    def _do_some(self, job_ids: Sequence[str], state: str, position: int | None) -> Flow[list[bool]]:
        if self._wish.action == "requeue":
            return (yield from requeue_these(self._quiet, job_ids))
        if self._wish.action == "delete":
            return (yield from self._delete(job_ids, state, position))
        answers: list[bool] = []
        for first in range(0, len(job_ids), _TOGETHER):
            replies = yield [self._one(job_id, state) for job_id in job_ids[first : first + _TOGETHER]]
            answers += [firm(reply) not in (False, "no") for reply in replies]
        return answers

    def _one(self, job_id: str, state: str) -> Operation[Any]:
        if self._wish.action == "cancel":
            return cancel(self._quiet, job_id, state)
        return reschedule(self._quiet, job_id, self._wish.mode, self._wish.ms)

    def _delete(self, job_ids: Sequence[str], state: str, position: int | None) -> Flow[list[bool]]:
        left = list(job_ids)
        answers: list[bool] = []
        while left:
            self._sent += 1
            (answer,) = yield [delete(self._queue, f"{self._request}.{self._sent}", left, state, position)]
            words = firm(answer)
            for job_id, word in zip(left, words, strict=False):
                answers.append((yield from self._delete_far(job_id, state)) if word == "FAR" else word == "yes")
            left = left[len(words) :]
        return answers

    def _delete_far(self, job_id: str, state: str) -> Flow[bool]:
        """Delete a job that stands somewhere in a long list, once it is found there."""
        for place in [state] if state else [PENDING, FAILED, COMPLETED, CANCELLED]:
            (size,) = yield [Operation("delete", None, (), ("LLEN", getattr(self._queue.keys, place)), int)]
            walk = Walk(self._queue, Filter(), Spot(place), is_newest_first=False, carry="id")
            position = yield from walk.position_of([job_id], firm(size))
            if position is not None:
                self._sent += 1
                request = f"{self._request}.{self._sent}"
                (answer,) = yield [delete(self._queue, request, [job_id], place, position)]
                return bool(firm(answer) == ["yes"])
        return False


class ActOnThese(Act):
    """An act on jobs that are named."""

    def __init__(self, queue: Settings, wish: Wish, job_ids: Sequence[str], progress: Progress | None) -> None:
        self._job_ids = [checked_id(job_id) for job_id in dict.fromkeys(job_ids)]
        more = len(self._job_ids) - _MOST_NAMED
        named = ", ".join(self._job_ids[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        super().__init__(queue, wish, f"jobs {named}", progress)

    def steps(self) -> Flow[Acted]:
        """Do it."""
        self._count(looked=len(self._job_ids), matched=len(self._job_ids))
        yield from self._do(self._job_ids, "", None)
        return self.acted


class ActOnMatching(Act):
    """An act on the jobs of a state that match a filter, the oldest first."""

    def __init__(
        self,
        queue: Settings,
        wish: Wish,
        state: str,
        wanted: Filter,
        *,
        limit: int | None,
        dry_run: bool,
        progress: Progress | None,
    ) -> None:
        checked_state(state, ACTIONS[wish.action])
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise UsageError(f"limit must be a whole number of at least 1, got {limit!r}")
        meant = ", ".join(filter(None, (f"{state} jobs", wanted.says(), f"at most {limit}" if limit else "")))
        super().__init__(queue, wish, meant, progress)
        self._state = state
        self._walk = Walk(queue, wanted, Spot(state), is_newest_first=False, carry="id")
        self._limit = limit
        self._is_dry = dry_run

    def steps(self) -> Flow[Acted]:
        """Walk, and do it to what matches.

        A list is walked as far as it went when this began; what comes meanwhile stays. Each job is met once.
        """
        walk, seen, kept = self._walk, set[str](), list[str]()
        left: int | None = None
        restarts = 0
        is_list = self._state != DELAYED
        # Each goes next in line, so the last one comes first.
        at_end = self._wish.action == "run_now"
        while walk.spot is not None and (left is None or left > 0) and self._room() > 0:
            looked, found = yield from walk.step(STRETCH if left is None else min(STRETCH, left), self._room())
            if is_list:
                left = (walk.size if left is None or walk.restarts > restarts else left) - looked
                restarts = walk.restarts
            ids = [job_id for job_id, _, _ in found if job_id not in seen]
            seen.update(ids)
            self._count(looked=looked - len(found) + len(ids), matched=len(ids))
            if at_end:
                kept += ids
            elif ids and not self._is_dry:
                walk.shift((yield from self._do(ids, self._state, walk.began)))
        if not self._is_dry:
            for end in range(len(kept), 0, -MOST_FOUND):
                yield from self._do(kept[max(0, end - MOST_FOUND) : end][::-1], self._state, None)
        return self.acted

    def _room(self) -> int:
        return MOST_FOUND if self._limit is None else min(MOST_FOUND, self._limit - self.acted.matched)


def note(queue: Settings, request: str, action: str, count: int, said: str, who: str | None) -> Operation[int]:
    """One line of the log about what an operator did.

    Args:
        queue: where.
        request: fresh, so that sending it again is recognised.
        action: what was done.
        count: to how many.
        said: more about it.
        who: who did it; None for this process's user and host.
    """
    args = (queue.now_argument(), queue.log_size, request, action, count, said, who or _user())
    return Operation("note", lua.load("note"), (queue.keys.log,), args, int)


def delete(
    queue: Settings, request: str, job_ids: Sequence[str], state: str = "", position: int | None = None
) -> Operation[list[str]]:
    """Delete jobs that rest; answers for each yes, no or FAR, and fewer answers than jobs when that was too much.

    Args:
        queue: where they are.
        request: fresh, so that sending it again is recognised.
        job_ids: the jobs.
        state: the state they must be in; '' for any.
        position: entries of the old end of that state's list before them, about.
    """
    keys = queue.keys
    return Operation(
        "delete",
        lua.load("delete"),
        (keys.pending, keys.delayed, keys.completed, keys.failed, keys.cancelled, keys.leases, keys.stats),
        (keys.jobs, state, request, "" if position is None else position, *job_ids),
        list,
    )


def _user() -> str:
    """The user of this process and its host."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number that has no name
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"
