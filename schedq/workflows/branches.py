"""The branches of a run: what each of them is doing, and what its operations are called."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Final

from schedq.model.runs import Memo, RunWait

WORKING: Final = "working"
WAITING: Final = "waiting"
FORKED: Final = "forked"
ENDED: Final = "ended"


class Undecided:
    """Which branch has decided, not stored yet: it is when the run does something because of it."""

    def __init__(self, name: str, memo: Memo, losers: Sequence[str]) -> None:
        self.name, self.memo, self.losers = name, memo, losers


class Branch:
    """One sequence of operations: the workflow's function, or a coroutine given to `gather` or `first`.

    Attributes:
        path: where it is: '' for the function, '1.2' for the second branch of its first fork.
        parent: the branch that waits for it, or None.
        task: the asyncio task that runs it.
        state: working, waiting (in an operation that waits), forked (its children are at work), or ended.
        waits: what it waits for.
        asking: its request to the record that is in progress.
        operation: the name of the operation that is in progress, or ''.
        is_closed: its operations do nothing any more.
        is_losing: it continues only to where it was in earlier attempts, to be cancelled there.
        is_blocked: it is there.
        reached_ms: the instant that it has reached, by its operations: the end of the last one that is over.
        undecided: decisions on which it continues, not stored yet.
        received: the operations that took messages since its last step.
        unseen: those that did when it was cancelled, so its code has not seen them.
        topic: the topic whose messages it waits for, or ''.
        children: the branches that it waits for.
        result, error: how it ended.
    """

    def __init__(self, path: str, parent: Branch | None, reached_ms: int) -> None:
        self.path, self.parent, self.reached_ms = path, parent, reached_ms
        self.task: asyncio.Task[None] | None = None
        self.state = WORKING
        self.waits: Sequence[RunWait] = ()
        self.asking: asyncio.Future[Any] | None = None
        self.operation = ""
        self.is_closed = self.is_losing = self.is_blocked = False
        self.undecided: list[Undecided] = []
        self.received: list[str] = []
        self.unseen: list[str] = []
        self.topic = ""
        self.children: list[Branch] = []
        self.result: Any = None
        self.error: BaseException | None = None
        self._named: dict[str, int] = {}
        self._forks = 0

    def name_of(self, base: str) -> str:
        """The full name of its next operation of this name. Equal names are numbered within the branch."""
        number = self._named[base] = self._named.get(base, 0) + 1
        name = base if number == 1 else f"{base}#{number}"
        return f"{self.path}/{name}" if self.path else name

    def next_fork(self) -> str:
        """The path of its next fork."""
        self._forks += 1
        return f"{self.path}.{self._forks}" if self.path else str(self._forks)

    def close(self) -> None:
        """Close it and all branches below it."""
        for each in self.below():
            each.is_closed = True

    def below(self) -> Iterator[Branch]:
        """The branch itself and all those below it that its present fork has."""
        yield self
        for child in self.children:
            yield from child.below()

    def line(self) -> Iterator[Branch]:
        """The branch itself, and those that wait for it."""
        found: Branch | None = self
        while found is not None:
            yield found
            found = found.parent

    def passed(self, name: str, memo: Memo) -> None:
        """An operation of it is over."""
        self.reached_ms = max(self.reached_ms, memo.ended_ms)
        if memo.kind == "step":
            self.received = []
        elif memo.kind == "receive" and memo.outcome == "ok":
            self.received.append(name)

    def missed(self, name: str, memo: Memo) -> None:
        """An operation of it was over, but it was cancelled there: its code has not seen the message."""
        if memo.kind == "receive" and memo.outcome == "ok":
            self.unseen.append(name)

    @property
    def unused(self) -> list[str]:
        """Operations whose messages go back if it loses: its code has not seen or not used them."""
        return [*self.received, *self.unseen]

    def joined(self, child: Branch) -> None:
        """It continues with the outcome of a branch below it."""
        self.reached_ms = max(self.reached_ms, child.reached_ms)
        self.undecided += child.undecided
        self.keep_unused(child)

    def keep_unused(self, child: Branch) -> None:
        """If it loses, what a branch below it has not used goes back, too."""
        self.received += child.received
        self.unseen += child.unseen


class Branches:
    """All branches of one attempt, by the tasks that run them.

    Args:
        all_wait: called when each branch that has not ended is inside an operation that waits.

    Attributes:
        main: the workflow's function.
    """

    def __init__(self, all_wait: Callable[[], None], began_ms: int) -> None:
        self._all_wait = all_wait
        self._by_task: dict[asyncio.Task[Any], Branch] = {}
        self._working = 1
        self.main = Branch("", None, began_ms)

    @property
    def at_rest(self) -> bool:
        """Whether no branch is at work."""
        return self._working == 0

    def __len__(self) -> int:
        return len(self._by_task)

    def of(self, task: asyncio.Task[Any] | None) -> Branch | None:
        """The branch that a task runs; None if it is no branch."""
        return None if task is None else self._by_task.get(task)

    def live(self) -> list[Branch]:
        """The branches that have not ended."""
        return list(self._by_task.values())

    def become(self, branch: Branch, state: str) -> None:
        """Change what a branch is doing."""
        self._working += (state == WORKING) - (branch.state == WORKING)
        branch.state = state
        if self._working == 0 and self.main.state != ENDED:
            self._all_wait()

    def fork(self, parent: Branch, labels: Sequence[str], path: str) -> list[Branch]:
        """New branches below one, at work from now on."""
        made = [Branch(f"{path}.{label}", parent, parent.reached_ms) for label in labels]
        for each in made:
            each.is_losing = parent.is_losing
        self._working += len(made)
        parent.children = made
        return made

    def start(self, branch: Branch, work: Coroutine[Any, Any, Any], ended: Callable[[Branch], None]) -> None:
        """Run a branch in a task of its own. `ended` is called in the turn of the loop in which it ends."""
        branch.task = task = asyncio.get_running_loop().create_task(_outcome_of(branch, work))
        self._by_task[task] = branch

        def over(_: asyncio.Task[None]) -> None:
            if task.cancelled():  # before it began
                work.close()
                branch.error = asyncio.CancelledError()
            branch.is_closed = True
            ended(branch)  # before it counts as ended, so that its parent is at work when no other branch is
            self.become(branch, ENDED)
            del self._by_task[task]

        task.add_done_callback(over)


async def _outcome_of(branch: Branch, work: Coroutine[Any, Any, Any]) -> None:
    """Keep how a branch ends. A SystemExit that leaves a task would end the event loop."""
    try:
        branch.result = await work
    except BaseException as error:  # noqa: BLE001 - whoever waits for the branch decides
        branch.error = error
