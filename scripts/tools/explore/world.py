"""Queues on a real server: execute a step, read everything, return to an earlier state."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from redis.exceptions import ResponseError

from schedq.connection.address import Address
from schedq.model.backoff import Fixed
from schedq.model.settings import Settings
from schedq.transitions import Operation
from tests.state import Key, State

LEASE_S: Final = 10
BACKOFF_S: Final = 30
BEGIN_S: Final = 1_800_000_000.0

# States are stored on the server, by the depth at which they were reached; `log` has times of the real clock.
_LOOK: Final = """
local found, names = {}, redis.call('KEYS', ARGV[1] .. '*')
table.sort(names)
for _, key in ipairs(names) do
  local kind, holds = redis.call('TYPE', key).ok, {}
  if kind == 'list' then holds = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'zset' then holds = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'hash' then holds = redis.call('HGETALL', key)
  elseif kind == 'string' then
    local value = redis.call('GET', key)
    local function hex(one) return string.format('%02x', string.byte(one)) end
    holds = {string.find(value, '[^ -~]') and 'hex:' .. string.gsub(value, '.', hex) or value}
  end
  found[#found + 1] = {string.sub(key, #ARGV[1] + 1), kind, redis.call('PTTL', key) < 0 and -1 or 1, holds}
  if ARGV[2] ~= '' then redis.call('COPY', key, ARGV[2] .. string.sub(key, #ARGV[1] + 1), 'REPLACE') end
end
return found
"""
_GO_BACK: Final = """
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', key) end
for _, key in ipairs(redis.call('KEYS', ARGV[2] .. '*')) do
  redis.call('COPY', key, ARGV[1] .. string.sub(key, #ARGV[2] + 1), 'REPLACE')
end
return redis.status_reply('OK')
"""
_CLEAR: Final = "for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', key) end"

Seen = tuple[tuple[str, str, int, tuple[str, ...]], ...]
"""All keys of the queues at one instant, in order; equal for equal states."""


class World:
    """A server with queues on a virtual clock.

    Args:
        socket_path: socket of a server that no one else uses.
        names: names of the queues.

    Attributes:
        queues: the settings of the queues; most scenarios use the first one.
        steps: number of actors' requests executed.
    """

    def __init__(self, socket_path: str, *, names: Sequence[str] = ("a", "b")) -> None:
        self.now_s = BEGIN_S
        self.steps = 0
        self.queues = [
            Settings(name, visibility_ms=LEASE_S * 1000, backoff=Fixed(BACKOFF_S), log_size=0, clock=self._clock)
            for name in names
        ]
        self._wire = Address(f"unix://{socket_path}").find("").connection("explorer")
        self._wire.connect()
        self._known: set[str] = set()

    def close(self) -> None:
        """Close the connection."""
        self._wire.disconnect()

    def clear(self) -> None:
        """Delete everything."""
        self.now_s = BEGIN_S
        self._ask([("EVAL", _CLEAR, 0, "queue:"), ("EVAL", _CLEAR, 0, "kept:")])

    def keep(self, depth: int) -> Seen:
        """Store the current state under this depth, and return it."""
        kept = f"kept:{depth}:"
        return _seen(self._ask([self._script(_CLEAR, kept), self._script(_LOOK, "queue:", kept)])[-1])

    def go_back(self, depth: int) -> None:
        """Return to the state that was stored under this depth."""
        self._ask([self._script(_GO_BACK, "queue:", f"kept:{depth}:")])

    def step(self, operation: Operation[Any], *, back_to: int = -1, keep_as: int = -1) -> tuple[Any, Seen]:
        """Go back, execute a request, and read the state, in one round trip. Returns the reply; errors are values."""
        self.steps += 1
        commands = [self._command(operation), self._script(_LOOK, "queue:", f"kept:{keep_as}:" if keep_as >= 0 else "")]
        if back_to >= 0:
            commands.insert(0, self._script(_GO_BACK, "queue:", f"kept:{back_to}:"))
            if keep_as >= 0:
                commands.insert(0, self._script(_CLEAR, f"kept:{keep_as}:"))
        *_, reply, seen = self._ask(commands)
        return reply, _seen(seen)

    def _clock(self) -> float:
        return self.now_s

    def _command(self, operation: Operation[Any]) -> tuple[Any, ...]:
        script = operation.script
        if script is not None and script.sha not in self._known:
            self._ask([("SCRIPT", "LOAD", script.source)])
            self._known.add(script.sha)
        return operation.command()

    def _script(self, source: str, *args: str) -> tuple[Any, ...]:
        sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        if sha not in self._known:
            self._ask([("SCRIPT", "LOAD", source)])
            self._known.add(sha)
        return ("EVALSHA", sha, 0, *args)

    def _ask(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        self._wire.send_packed_command(self._wire.pack_commands(commands), check_health=False)
        return [self._read() for _ in commands]

    def _read(self) -> Any:
        try:
            return self._wire.read_response(disconnect_on_error=False)
        except ResponseError as error:
            return error


def _seen(reply: Any) -> Seen:
    if isinstance(reply, Exception):
        raise reply
    return tuple([(name, kind, ttl, tuple(holds)) for name, kind, ttl, holds in reply])


def states(seen: Seen, queues: Sequence[Settings]) -> list[State]:
    """The state of each queue, from what was read."""
    return [State(dict(_keys(seen, f"{queue.name}:"))) for queue in queues]


def _keys(seen: Seen, prefix: str) -> Any:
    for name, kind, ttl, holds in seen:
        if not name.startswith(prefix):
            continue
        found: Any = list(holds)
        if kind in ("hash", "zset"):
            found = dict(zip(holds[::2], holds[1::2], strict=True))
        elif kind == "list":
            found = found[::-1]
        yield name.removeprefix(prefix), Key(kind, ttl, found)
