"""Actors of runs that wait for jobs of another queue, and the carrier, which looks at both queues for them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from schedq.errors import Conflict
from schedq.model import outcome
from schedq.model.groups import ENDED, GroupDefinition
from schedq.model.records import ClaimedJob
from schedq.model.runs import STEP, UNTIL, Memo, Run, RunWait, beginning
from schedq.model.settings import Settings
from schedq.model.times import LAST_INSTANT_MS
from schedq.transitions import Operation, groups, identity, promote, reclaim, run, stand_ins, unwrap
from schedq.transitions.groups import GroupEnd
from schedq.transitions.stand_ins import StandIn
from schedq.workflows.children import goes_on, outcome_of
from schedq.workflows.place import Place
from scripts.tools.explore.actors import Pause, Plan, RequestGenerator, claims_jobs, ending, works
from scripts.tools.explore.run_actors import written
from scripts.tools.settling import settle_all

NAME: Final = "g"
"""The group of the only operation of a run."""
_CALL: Final = "call"
_ITEMS: Final = (',"args":[0]',)


@cache
def elsewhere(queue: Settings) -> Settings:
    """The settings of the other queue."""
    return replace(queue, name="b", gates={})


def there(plan: Plan) -> Plan:
    """This plan in the other queue."""
    return lambda queue: plan(elsewhere(queue))


def dies_after(plan: Plan, requests: int) -> Plan:
    """This actor, which sends so many round trips."""

    def steps(queue: Settings) -> RequestGenerator:
        trips = plan(queue)
        replies = yield next(trips)
        for _ in range(requests - 1):
            replies = yield trips.send(replies)

    return steps


def runs_elsewhere(name: str, *, claims: int = 1) -> Plan:
    """A worker runs a workflow that calls one task of the other queue, as `workflows/children.py` does."""

    def steps(queue: Settings) -> RequestGenerator:
        for number in range(claims):
            for job in (yield from claims_jobs(queue, f"{name}{number}", name)):
                job = replace(job, run=job.run or beginning(1, job.claimed_at_ms, None))
                try:
                    ends = yield from _Attempt(queue, job, *_places(job)).steps()
                except Conflict:
                    ends = ending("fail", job, queue)
                yield from settle_all(queue, [ends])

    return steps


def _places(job: ClaimedJob) -> tuple[Place, str]:
    """The place of the operation, and the end of a generation that is new."""
    age = f"{Run.read(job.run).requeued:02x}"
    return Place(NAME, age, f"{age}0000"), age + "".join(filter(str.isalnum, job.claim_token))[-4:].zfill(4)


@dataclass(frozen=True)
class _Attempt:
    """One attempt."""

    queue: Settings
    job: ClaimedJob
    place: Place
    generation: str

    @property
    def theirs(self) -> Settings:
        return elsewhere(self.queue)

    def steps(self) -> Generator[Any, Any, Any]:
        """Do what is left; returns how the attempt ends."""
        (reply,) = yield [run.recall(self.queue, self.job)]
        known = unwrap(reply)
        end: Memo | RunWait | None = Memo.read(known.get(STEP + _CALL, ""))
        if end is None:
            end = yield from self._end(is_new=UNTIL + _CALL not in known)
        if isinstance(end, RunWait):
            return outcome.suspended(self.job, (end,))
        return ending("complete" if end.outcome == "ok" else "discard", self.job, self.queue)

    def _end(self, *, is_new: bool) -> Generator[Any, Any, Memo | RunWait]:
        (reply,) = yield [run.until(self.queue, self.job, _CALL, "at", LAST_INSTANT_MS)]
        now_ms = int(unwrap(reply).rest[1])
        while True:
            made = stand_ins.definition(self.theirs, NAME, self.job.id, generation=self.generation)
            (reply,) = yield [groups.fill(self.queue, made, (), 0, holder=self.job)]
            unwrap(reply)
            found = GroupEnd({}) if is_new else (yield from self._look())
            is_new = False
            if found.status in ENDED and not (yield from self._goes_on(found)):
                break
            if (yield from self._fill(found.fields)):
                return RunWait(_CALL, _CALL, now_ms + 900_000, "", NAME)
        memo = Memo(_CALL, *outcome_of(_CALL, self.place, found), 1, 2, 1)
        (reply,) = yield [run.step(self.queue, self.job, _CALL, written(memo))]
        unwrap(reply)
        yield [groups.look_at(self.theirs, [NAME])]
        yield from groups.drop(self.queue, NAME, stand_ins=True)
        return memo

    def _look(self) -> Generator[Any, Any, GroupEnd]:
        first = Operation("results", None, (), ("HGET", self.theirs.keys.group(NAME) + ":results:0", "0"), identity)
        fields, items, result = yield [*groups.reading(self.theirs, NAME), first]
        return GroupEnd(groups.of_replies((fields, items)), unwrap(result))

    def _goes_on(self, found: GroupEnd) -> Generator[Any, Any, bool]:
        return (yield from goes_on(self.place, found, self.theirs, _Asked).__await__())

    def _fill(self, fields: Mapping[str, str]) -> Generator[Any, Any, bool]:
        """Make the jobs; False if the group must be looked at again."""
        if fields.get("closed") == "1" or fields.get("status") == "cancelling":
            return True
        if fields.get("numbered") == "1":
            yield from groups.retry(self.theirs, NAME, self.place.retry)
            return True
        if fields.get("status") in ENDED:
            return False
        made = _jobs_of(self.queue, self.generation)
        digest = fields.get("digest", "")
        (reply,) = yield [groups.fill(self.theirs, made, _ITEMS, 0, digest=digest)]
        unwrap(reply)
        (reply,) = yield [groups.fill(self.theirs, made, (), len(_ITEMS), close=True, digest=digest)]
        return unwrap(reply).status not in ENDED


class _Asked:
    """Requests that a coroutine of the library sends: the actor's own round trips."""

    def __init__(self, trips: RequestGenerator) -> None:
        self._trips = trips

    def __await__(self) -> RequestGenerator:
        return self._trips


def fills_late() -> Plan:
    """An attempt that lost its lease after it had made the stand-in, and does not know that."""

    def steps(queue: Settings) -> RequestGenerator:
        yield groups.reading(elsewhere(queue), NAME)
        made = _jobs_of(queue, "00late")
        (reply,) = yield [groups.fill(elsewhere(queue), made, _ITEMS, 0)]
        unwrap(reply)
        yield [groups.fill(elsewhere(queue), made, (), len(_ITEMS), close=True)]

    return steps


def _jobs_of(home: Settings, generation: str) -> GroupDefinition:
    return GroupDefinition(
        NAME,
        generation,
        head='{"task":"t"',
        tail="}",
        tells=home.keys.due,
        kept_ms=stand_ins.KEPT_MS,
        close_within_ms=stand_ins.CLOSE_WITHIN_MS,
    )


def carries(times: int = 1, *, hears: bool = True) -> Plan:
    """The leader of the run's queue looks at its stand-ins, and does what follows; it `hears` of ends, or waits."""

    def steps(queue: Settings) -> RequestGenerator:
        for _ in range(times):
            *_, reply = yield [*([groups.look_at(queue, [NAME])] if hears else []), groups.advance(queue)]
            found = [StandIn(*each) for each in unwrap(reply).stand_ins]
            operations = (yield from stand_ins.look(queue, elsewhere(queue), found)) if found else []
            if operations:
                yield operations

    return steps


def rescues(queue: Settings) -> RequestGenerator:
    """Time passes; then promoters of both queues, the carrier, and workers of both act once."""
    yield [Pause(11)]
    for each in (queue, elsewhere(queue)):
        yield [promote.promote(each, 1000, "rescuer")]
        yield from reclaim.take_back(each)
    yield from groups.advance_all(elsewhere(queue))
    yield from carries(hears=False)(queue)
    yield from works(f"b{queue.now_argument()}", "complete")(elsewhere(queue))
    yield from runs_elsewhere(f"a{queue.now_argument()}")(queue)
