"""Scripts that fail at their n-th call of Redis, for every n.

Redis aborts a script between two of its calls only on an error: a key of the wrong type, full memory before the first
write, a user without permission for a command, a script killed before it wrote, or a bug in the script. A crash of the
server is not such a point: a script's effects reach the append-only file and the replicas as one transaction, all or
nothing. What was written before the error remains, so this is the harshest interruption possible, and scripts must
order their writes so that a half-done change is detected and repaired.

Each point is tested twice: the caller, who got the error, sends the whole request again (connections don't do that by
themselves, because the error is not transient); or it does not, because the caller is gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import redis

from schedq.errors import SchedqError
from schedq.queue.queue import Queue
from schedq.transitions import Operation, claim
from schedq.transitions.scripts import Script, header
from scripts.tools.crashes.recovery import finish, lost, recover
from scripts.tools.crashes.scene import Scene, Staged
from tests.doors import Clock
from tests.servers import Server
from tests.state import State

AGAIN, GONE = "sent again", "caller gone"
UNMENDED: Final = {"totals", "run_counts"}
"""What is counted at the end of a transition; one that ends with an error may remain uncounted for good."""
NOTED_TWICE: Final = "is in broken 2 times"
"""An id that cannot be run is recorded twice, rather than never, if an error occurred right after the first record."""

_PRELUDE: Final = """
local real, calls = redis, 0
local function step()
  calls = calls + 1
  if calls == %d then error('cut short here') end
end
local redis = {
  call = function(...) step() return real.call(...) end,
  pcall = function(...) step() return real.pcall(...) end,
  error_reply = real.error_reply,
}
"""


def cut(script: Script, call: int) -> Script:
    """The same script, which raises an error instead of its n-th call of Redis."""
    source = _PRELUDE % call + script.source
    return Script(script.name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


@dataclass(frozen=True)
class Point:
    """The result of one crash point.

    Attributes:
        scene: the transition and the situation.
        call: the number of the call before which the script was aborted.
        then: whether the request was sent again.
        is_untouched: nothing had been written.
        wrong: problems that remained after recovery; should be empty.
        ran: ids of the jobs that ran during recovery, once per run.
        places: the final state of each job.
    """

    scene: str
    call: int
    then: str
    is_untouched: bool
    wrong: list[str]
    ran: list[str] = field(default_factory=list)
    places: dict[str, list[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.scene}, cut before call {self.call}, {self.then}: {'; '.join(self.wrong) or 'repaired'}"


class Stage:
    """One queue on which scenes are set up, interrupted and set up again."""

    def __init__(self, server: Server, name: str) -> None:
        self.clock = Clock()
        self.server = server
        self._name = name
        self._raw = server.client(decode_responses=False)
        self._client = server.client()

    def points(self, scene: Scene) -> Iterator[Point]:
        """Interrupt a scene's script at every call; the last point is after all calls, where nothing is interrupted."""
        with self._set(scene) as (queue, staged, reset):
            before = self._content(queue)
            call, is_cut = 0, True
            while is_cut:
                call += 1
                for then in (AGAIN, GONE):
                    reset()
                    is_cut = self._is_cut(staged.operation, call)
                    untouched = self._content(queue) == before
                    if then == GONE and (untouched or staged.goes_on):
                        continue  # same as never sent
                    yield self._look(queue, staged, Point(scene.name, call if is_cut else 0, then, untouched, []))

    def wrong_types(self, scene: Scene) -> dict[str, str]:
        """The outcome of the transition if a key has another type, by key: the error, `done`, or `partly done`."""
        found = {}
        with self._set(scene) as (queue, staged, reset):
            for key in dict.fromkeys([*staged.operation.keys, *_rare_keys(queue, staged.operation)]):
                reset()
                self._raw.delete(key)
                is_list = key.rpartition(":")[2] in (
                    "pending",
                    "processing",
                    "completed",
                    "failed",
                    "cancelled",
                    "samples",
                )
                if is_list:
                    self._raw.zadd(key, {"what is this": 1})
                else:
                    self._raw.rpush(key, "what is this")
                found[key.removeprefix(queue.settings.keys.prefix)] = self._outcome(queue, staged.operation)
        return found

    def full_memory(self, scene: Scene) -> str:
        """The outcome of the transition if Redis's memory is full: the error, or `done`."""
        with self._set(scene) as (queue, staged, reset):
            reset()
            # Not sent as source text: the server frees that buffer at an unpredictable moment, which frees memory.
            self._client.setrange("ballast", 999_999, "x")
            self._client.config_set("maxmemory", self._client.info("memory")["used_memory"] - 500_000)
            try:
                return self._outcome(queue, staged.operation)
            finally:
                self._client.config_set("maxmemory", 0)
                self._client.delete("ballast")

    def _outcome(self, queue: Queue, operation: Operation[Any]) -> str:
        before = self._content(queue)
        try:
            queue._ask(operation)
        except SchedqError as error:
            return type(error).__name__ if self._content(queue) == before else "partly done"
        return "done"

    @contextmanager
    def _set(self, scene: Scene) -> Iterator[tuple[Queue, Staged, Callable[[], None]]]:
        """A queue with the scene set up, and a function that sets it up again."""
        began = self.clock.now
        with Queue(self._name, redis=self.server.unix_url, clock=self.clock, retry_for=0, **scene.settings) as queue:
            self._clear(queue)
            staged = scene.stage(queue, self.clock)
            set_at, image = self.clock.now, self._image(queue)

            def reset() -> None:
                self.clock.now = set_at
                self._restore(queue, image)

            try:
                yield queue, staged, reset
            finally:
                self._clear(queue)
                self.clock.now = began

    def script_of(self, scene: Scene) -> str:
        """The name of the script that a scene interrupts."""
        with Queue(self._name, redis=self.server.unix_url, clock=Clock(), retry_for=0, **scene.settings) as queue:
            script = scene.stage(queue, Clock()).operation.script
            self._clear(queue)
        assert script is not None
        return script.name

    def close(self) -> None:
        """Close its connections."""
        self._raw.close()
        self._client.close()

    def _is_cut(self, operation: Operation[Any], call: int) -> bool:
        assert operation.script is not None
        broken = operation._replace(script=cut(operation.script, call))
        try:
            self._client.execute_command(*broken.command(with_source=True))
        except redis.ResponseError as error:
            assert "cut short here" in str(error), error
            return True
        return False

    def _look(self, queue: Queue, staged: Staged, point: Point) -> Point:
        wrong: list[str] = []
        accepted = set(staged.accepted)
        first: list[str] = []
        if point.then == AGAIN:
            if staged.operation.is_repeatable:
                try:
                    reply = queue._ask(staged.operation)
                except SchedqError as error:
                    reply = error
                    wrong.append(f"raised {error}")
                if staged.reply is not None and reply != staged.reply:
                    wrong.append(f"returned {reply!r}")
                accepted |= set(staged.accepts)
            else:
                names = [each.name for each in header("claim").args]
                request = str(staged.operation.args[names.index("request")])
                jobs = queue._drive(claim.recover(queue.settings, request))
                first = [job.id for job in jobs]
                wrong += [f"settling a recovered job returns {word}" for word in finish(queue, jobs) if word != "OK"]
        ran = first + recover(queue, self.clock)
        state = State.of(self._client, queue.settings.keys)
        accepted -= set(staged.may_go)
        wrong += lost(state, accepted)
        wrong += [f"{job_id} ran {ran.count(job_id)} times" for job_id in set(ran) if ran.count(job_id) > 1]
        for law, complaints in state.broken_laws().items():
            if law not in UNMENDED:
                wrong += [f"{law}: {complaint}" for complaint in complaints if not complaint.endswith(NOTED_TWICE)]
        places = {place: sorted(ids) for place, ids in state.places().items()}
        return replace(point, wrong=wrong, ran=sorted(ran), places=places)

    # -- resetting the scene

    def _keys(self, queue: Queue) -> list[Any]:
        return sorted(self._raw.keys(queue.settings.keys.prefix + "*"))

    def _clear(self, queue: Queue) -> None:
        if names := self._keys(queue):
            self._raw.unlink(*names)

    def _image(self, queue: Queue) -> list[tuple[Any, int, Any]]:
        return [(name, max(0, self._raw.pttl(name)), self._raw.dump(name)) for name in self._keys(queue)]

    def _restore(self, queue: Queue, image: list[tuple[Any, int, Any]]) -> None:
        pipe = self._raw.pipeline(transaction=False)
        if names := self._keys(queue):
            pipe.unlink(*names)
        for name, ttl_ms, value in image:
            pipe.restore(name, ttl_ms, value)
        pipe.execute()

    def _content(self, queue: Queue) -> dict[str, Any]:
        state = State.of(self._client, queue.settings.keys)
        return {name: (key.kind, key.ttl_ms >= 0, key.holds) for name, key in state.keys.items()}


def _rare_keys(queue: Queue, operation: Operation[Any]) -> list[str]:
    """The keys that the operation's script builds itself."""
    if operation.script is None:
        return []
    return [
        getattr(queue.settings.keys, each.name) for each in header(operation.script.name).rare if each.type != "prefix"
    ]
