"""The behaviours of Redis that the engine stands on, tried on the server at hand.

Under keys of their own, inside the queue's prefix, which are gone when each script ends. `tests/conformance` has the
whole list; here are those that servers of other make, proxies and access rules get wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from schedq import lua
from schedq.doctor.finding import Finding
from schedq.errors import SchedqError, UsageError
from schedq.ids import new_request
from schedq.operations import Flow, Operation, same
from schedq.settings import Settings

_TRY: Final = """
local key, other = KEYS[1], ARGV[1]
local function try()
{body}
end
local ok, found = pcall(try)
redis.pcall('DEL', key)
redis.pcall('DEL', other)
return ok and tostring(found) or 'error: ' .. tostring(type(found) == 'table' and found.err or found)
"""

_PROBES: Final = {
    "a number with 13 digits keeps them on its way into a score and a field": (
        "redis.call('ZADD', key, 1800000000123, 'a') redis.call('HSET', other, 'at', 1800000000123)"
        " return tonumber(redis.call('ZSCORE', key, 'a')) == 1800000000123 and redis.call('HGET', other, 'at')",
        "1800000000123",
    ),
    "a script may read the time and write after it": (
        "local time = redis.call('TIME') redis.call('SET', key, time[1]) return #time[1] >= 10 and #time[2] <= 6",
        "true",
    ),
    "a script may touch a key that it builds": (
        "redis.call('LPUSH', key, 'a') redis.call('LMOVE', key, other, 'RIGHT', 'LEFT')"
        " return redis.call('EXISTS', key) .. redis.call('LPOP', other)",
        "0a",
    ),
    "an empty list or set is gone": (
        "redis.call('ZADD', key, 0, '1') redis.call('ZREM', key, '1') return redis.call('TYPE', key).ok",
        "none",
    ),
    "what is equally due comes in the order of the ids": (
        "redis.call('ZADD', key, 5, 'b', 5, 'c', 5, 'a') return table.concat(redis.call('ZRANGE', key, 0, -1))",
        "abc",
    ),
    "an entry is found from the end that is asked for": (
        "redis.call('RPUSH', key, 'a', 'b', 'a') return redis.call('LPOS', key, 'a', 'RANK', -1)",
        "2",
    ),
    "a failed command is an answer that a script can go on from": (
        "redis.call('SET', key, 'x') return string.find(redis.pcall('LPUSH', key, 'y').err, 'WRONGTYPE') ~= nil",
        "true",
    ),
    "what is not there is false": ("return redis.call('HMGET', key, 'a')[1]", "false"),
    "a row of 1,000 words can be unpacked": (
        "local row = {} for i = 1, 1000 do row[i] = i end return redis.call('RPUSH', key, unpack(row))",
        "1000",
    ),
    "an expiry can be set and taken away": (
        "redis.call('HSET', key, 'a', 1) redis.call('PEXPIRE', key, 60000) redis.call('PERSIST', key)"
        " return redis.call('PTTL', key)",
        "-1",
    ),
    "a stream keeps about as many entries as it is told": (
        "for i = 1, 300 do redis.call('XADD', key, 'MAXLEN', '~', 10, '*', 'a', i) end"
        " return redis.call('XLEN', key) < 300",
        "true",
    ),
}
"""What must hold -> Lua that answers, and its answer."""


@dataclass(frozen=True, slots=True)
class Conformance:
    """What was tried.

    Attributes:
        differing: what does not hold -> what was found instead.
        untried: how many could not be tried, as the user may not write, or memory is full.
    """

    differing: dict[str, str]
    untried: int


def look(queue: Settings) -> Flow[Conformance]:
    """Try each."""
    keys = [f"{queue.keys.prefix}probe:{new_request()}" for _ in _PROBES]
    answers = yield [_probe(key, body) for key, (body, _) in zip(keys, _PROBES.values(), strict=True)]
    return _differing(answers)


def _probe(key: str, body: str) -> Operation[str]:
    script = lua.script("probe", _TRY.replace("{body}", body))
    return Operation("conformance", script, (key,), (key + ":other",), same)


def _differing(answers: Sequence[str | SchedqError]) -> Conformance:
    found: dict[str, str] = {}
    untried = 0
    for (what, (_, right)), answer in zip(_PROBES.items(), answers, strict=True):
        is_refusal = isinstance(answer, UsageError) or any(
            words in str(answer) for words in ("NOPERM", "permission", "OOM command", "can't run this", "can't access")
        )
        if is_refusal:
            untried += 1
        elif str(answer) != right:
            found[what] = str(answer)
    return Conformance(found, untried)


def judge(found: Conformance) -> Iterator[Finding]:
    """The findings about what does not hold."""
    if found.untried:
        yield Finding(
            "conformance-untried",
            "note",
            f"{found.untried} of {len(_PROBES)} behaviours that the engine stands on were not tried",
            "the Redis user may not write, or memory is full",
            "examine it as a user who may write to the queue's keys",
        )
    for what, answer in found.differing.items():
        yield Finding(
            "conformance",
            "error",
            f"it does not hold that {what}: the answer is {answer:.200}",
            "schedq's scripts rely on it; jobs may be lost or run twice on this server",
            "use Redis 6.2 or later, or Valkey; if this is one of them, it is behind a proxy, or altered: do not use "
            "it for jobs",
        )
