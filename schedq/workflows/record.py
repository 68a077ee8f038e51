"""The record of a run, as one attempt reads and writes it in Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from schedq.connection.async_client import AsyncClient
from schedq.errors import UsageError
from schedq.model.payload import clean_text, encode, loaded, size_of
from schedq.model.records import ClaimedJob
from schedq.model.runs import (
    INBOX,
    KEEP,
    MOST_BYTES,
    MOST_MEMOS,
    MOST_OF_FLOW,
    RETURNED,
    STEP,
    TRIES,
    UNDOING,
    UNTIL,
    Memo,
    Run,
    RunStopped,
    RunWait,
    beginning,
    checked_topic,
    open_undos,
    undone,
    without_undos,
)
from schedq.model.settings import Settings
from schedq.queue.workflow import Workflow
from schedq.transitions import run as requests

_BRIEF: Final = 500
_MEMO_BYTES: Final = 200


class Record:
    """The record of one run, for the attempt that holds its job.

    Each request raises RunLost once the attempt no longer holds the job, and RunStopped if the job was asked to stop;
    what that request was to record is stored then.

    Attributes:
        memos: the operations that have ended, by name.
        begun: the names of all operations that earlier attempts have begun and left a trace of.
        topics: the topics of messages that nothing had taken when the record was read.
        since: since when operations wait that earlier attempts have begun, ms, by name.
        tries: failed tries of steps, by name: how many, the instant of the next one in ms, and the last error.
        version: of the workflow when the run began.
        began_ms: when the run began, on Redis's clock.
        deadline_ms: when it has taken too long; None for never.
        args: the arguments with which it started over; None if it did not.
        life: how often it has started over.
        requeued: how often its job was requeued.
        undos: the calls that undo steps which have begun, by name, the newest first; each is a payload as JSON.
        undoing: the error of a run that failed and undoes what it has done, '' for one that was cancelled; else None.
    """

    def __init__(self, client: AsyncClient, queue: Settings, job: ClaimedJob, workflow: Workflow) -> None:
        self._client = client
        self._queue = queue
        self._job = job
        self._is_new = not job.run and not workflow.is_flow  # a flow may have been paused
        self._most = MOST_OF_FLOW if workflow.is_flow else MOST_MEMOS
        job.run = job.run or beginning(
            workflow.version, job.claimed_at_ms, workflow.run_timeout_ms, is_flow=workflow.is_flow
        )
        self.memos: dict[str, Memo] = {}
        self.undos: dict[str, str] = {}
        self.undoing: str | None = None
        self.tries: dict[str, tuple[int, int, str]] = {}
        self.args: tuple[Sequence[Any], Mapping[str, Any]] | None = None
        self._failures: dict[str, int] = {}  # requests about failed tries, by step
        self._promised: set[str] = set()  # operations that have room
        self.begun: set[str] = set()
        self.topics: set[str] = set()
        self.since: dict[str, int] = {}
        self._note(Run.read(job.run))

    def _note(self, run: Run) -> None:
        self.version, self.began_ms, self.deadline_ms, self.life = run.version, run.began_ms, run.deadline_ms, run.life
        self.requeued = run.requeued
        self._bytes = run.bytes

    async def recall(self) -> None:
        """Read what earlier attempts recorded; sends nothing if that is nothing."""
        if self._is_new:
            return
        if Run.read(self._job.run).is_void:  # starting over was cut short
            await self._begin(self.life, "")
        fields = await self._client.ask(requests.recall(self._queue, self._job))
        for field, text in fields.items():
            if field.startswith((STEP, TRIES, UNTIL)):
                self.begun.add(field.partition(":")[2])
            elif field.startswith(INBOX) and text:
                self.topics.add(field.removeprefix(INBOX))
            if field.startswith(STEP) and (memo := Memo.read(text)) and memo.outcome != RETURNED:
                self.memos[field.removeprefix(STEP)] = memo
            elif field.startswith(UNTIL) and (since := text.partition(" ")[2]).isdecimal():
                self.since[field.removeprefix(UNTIL)] = int(since)
            elif field.startswith(TRIES):
                self._note_tries(field.removeprefix(TRIES), text)
        self.undos = dict(open_undos(fields))
        self.undoing = fields.get(UNDOING, "") if Run.read(self._job.run).undoing else None
        self.args = loaded(fields.get("args")) if self.life else None

    def _note_tries(self, name: str, text: str) -> None:
        count, at, number, error = (*text.split(" ", 3), "", "", "")[:4]
        if count.isdecimal() and at.isdecimal() and number.isdecimal():
            self.tries[name], self._failures[name] = (int(count), int(at), error), int(number)

    def check(self, name: str) -> None:
        """Check that the record has room for another memo of this name.

        Raises:
            RecordFull: it has not.
        """
        if undone(name):
            return  # there is always room for it
        self._promised.add(name)
        count = len(self.memos) + len(self._promised - self.memos.keys())
        if name not in self.memos and (count > self._most or self._bytes >= MOST_BYTES):
            raise requests.no_room(self._job)

    async def write(self, name: str, memo: Memo, replaced: str = "") -> Memo:
        """Record how an operation ended; returns what is stored: this memo, or the one that was there.

        `replaced` is an operation whose memo has no more meaning, and is deleted.

        Raises:
            UsageError: the value is not JSON, or too large.
            RecordFull: the record has no room for it.
        """
        return await self.decide(name, memo, (), replaced)

    async def decide(self, name: str, memo: Memo, losers: Sequence[str], replaced: str = "") -> Memo:
        """Record the winner of a race; what the operations `losers` had received goes back to its box.

        Raises:
            UsageError, RecordFull: as `write`.
        """
        what = f"the result of {name}"
        encode(memo.value, self._queue.max_payload, what)
        text = encode([*memo[:-1]], self._queue.max_payload + _MEMO_BYTES, what)
        request = requests.step(self._queue, self._job, name, text, losers, replaced)
        for gone in (*losers, replaced):
            self.memos.pop(gone, None)
        return self._stored(name, await self._client.ask(request))

    async def failed(self, name: str, error: str, delay_ms: int, *, counts: bool = True) -> tuple[int, int]:
        """Store that a step failed: how many of its tries have counted, and the instant of the next one in ms.

        `counts=False`: this try does not count, because the step asked to be put off.
        """
        number = self._failures.get(name, 0) + 1
        brief = clean_text(error, _BRIEF)
        request = requests.failed_try(self._queue, self._job, name, number, delay_ms, brief, counts=counts)
        answer = await self._client.ask(request)
        self._failures[name] = number
        count, at = int(answer.rest[0]), int(answer.rest[1])
        self.tries[name] = (count, at, brief)
        self._check(answer)
        return count, at

    async def add_undo(self, name: str, call: str) -> str:
        """Store the call that undoes a step, before it begins; returns the stored one, which may be an earlier one.

        Raises:
            RecordFull: the record has no room for it.
        """
        answer = await self._client.ask(requests.add_undo(self._queue, self._job, name, call))
        self._job.run = answer.rest[0]
        self._bytes = Run.read(self._job.run).bytes
        stored = self.undos[name] = answer.rest[1].partition(" ")[2]
        self._check(answer)
        return str(stored)

    async def until(self, name: str, *, delay_ms: int | None = None, at_ms: int | None = None) -> tuple[int, int]:
        """Fix until when an operation waits, if it is not fixed yet: that instant and now, ms on Redis's clock.

        Raises:
            UsageError: neither or both of `delay_ms` and `at_ms` are given.
        """
        if (delay_ms is None) == (at_ms is None):
            raise UsageError("give either delay_ms or at_ms")
        mode, ms = ("in", delay_ms) if at_ms is None else ("at", at_ms)
        answer = await self._client.ask(requests.until(self._queue, self._job, name, mode, ms or 0))
        self._check(answer)
        return int(answer.rest[0]), int(answer.rest[1])

    async def receive(self, name: str, topic: str, timeout_ms: int | None) -> Memo | RunWait:
        """Take the first message of a topic that is in time: its memo, one of outcome timeout, or a wait.

        Raises:
            UsageError: the topic is invalid.
            RecordFull: the record has no room for it.
        """
        request = requests.receive(self._queue, self._job, name, checked_topic(topic), timeout_ms)
        answer = await self._client.ask(request)
        if answer.word != "WAITS":
            return self._stored(name, answer)
        self._check(answer)
        return RunWait("receive", name, int(answer.rest[0]) if answer.rest[0] else None, topic)

    async def start_over(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Begin the run again with other arguments, in JSON types; the attempt then ends as one that waits for nothing.

        Raises:
            UsageError: the arguments are not JSON, or too large.
        """
        text = encode([list(args), dict(kwargs)], self._queue.max_payload, "the arguments")
        await self._begin(self.life + 1, text)

    async def _begin(self, life: int, args: str) -> None:
        answer = await self._client.ask(requests.start_over(self._queue, self._job, life, args))
        self._job.run = answer.rest[0]
        self._note(Run.read(self._job.run))
        for known in (self.memos, self.tries, self.begun, self.since, self._failures, self._promised, self.undos):
            known.clear()
        self._check(answer)

    def _stored(self, name: str, answer: requests.Answer) -> Memo:
        memo = Memo.read(answer.rest[0])
        if memo is None:
            raise UsageError(f"what is recorded of {name} is damaged: {answer.rest[0]!r:.200}")
        self.memos[name] = memo
        self.tries.pop(name, None)
        if answer.word == "OK":
            self._job.attempts, self._job.crashes = 1, 0  # as the script has it: the run makes progress
            self._bytes += size_of(answer.rest[0])
            if memo.kind == KEEP:
                self.undos.clear()
                self._job.run = without_undos(self._job.run)
        self._check(answer)
        return memo

    def _check(self, answer: requests.Answer) -> None:
        if answer.is_stopped:
            raise RunStopped(f"job {self._job.id} was asked to stop")
