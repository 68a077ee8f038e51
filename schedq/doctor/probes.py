"""Measurements and trials on the server: its clock, its speed, and the behaviors that schedq depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Final

from schedq.doctor.checks import Check, Finding, findings, known, plain
from schedq.errors import SchedqError, UsageError
from schedq.inspect import stats
from schedq.inspect.display import approximate
from schedq.model.ids import new_request
from schedq.model.settings import Settings
from schedq.model.times import monotonic, wall
from schedq.transitions import Operation, RoundTrips, identity, scripts

_READINGS: Final = 5
_MOST_APART_MS: Final = 1000
_MOST_STEP_MS: Final = 500
_MOST_AHEAD_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Both clocks at one moment; all in ms.

    Attributes:
        server_ms: Redis's clock.
        wall_ms: this machine's clock, in the middle of the round trip.
        steady_ms: its monotonic clock at the same moment.
        trip_ms: length of the round trip.
    """

    server_ms: float
    wall_ms: float
    steady_ms: float
    trip_ms: float


@dataclass(frozen=True, slots=True)
class ClockDifference:
    """How far one clock is ahead of another, and the uncertainty due to the round trips; both in ms."""

    ms: float
    doubt_ms: float


def read_clocks(
    wall: Callable[[], float] = wall, monotonic: Callable[[], float] = monotonic
) -> RoundTrips[list[ClockReading]]:
    """Read both clocks a few times."""
    found: list[ClockReading] = []
    for _ in range(_READINGS):
        began, before = monotonic(), wall()
        (time,) = yield [plain("TIME")]
        ended, after = monotonic(), wall()
        if not isinstance(time, SchedqError):
            server_ms = int(time[0]) * 1000 + int(time[1]) / 1000
            trip = 1000 * (ended - began)
            found.append(ClockReading(server_ms, 500 * (before + after), 500 * (began + ended), trip))
    return found


def read_ahead_ms(log: str) -> RoundTrips[int]:
    """How far the last entry of a queue's audit stream is in the future, ms; 0 if unknown.

    Ids of a stream never decrease, so they remember a clock that was ahead.
    """
    last, time = yield [plain("XREVRANGE", log, "+", "-", "COUNT", 1), plain("TIME")]
    if not known(last, []) or not known(time, []):
        return 0
    return int(str(last[0][0]).partition("-")[0]) - int(time[0]) * 1000 - int(time[1]) // 1000


OFFSET: Final[Check[ClockDifference]] = Check(
    "clock-offset",
    "warning",
    lambda it: abs(it.ms) - it.doubt_ms > _MOST_APART_MS,
    lambda it: f"Redis's clock is {approximate(abs(it.ms))} {'ahead of' if it.ms > 0 else 'behind'} this machine's",
    "a run_at computed on this machine is off by that much; delays are not, because Redis adds them to its own clock. "
    "Other programs write claims by their own clock, and their reclaimers rely on it",
    "synchronize both clocks with NTP",
)
JUMP: Final[Check[ClockDifference]] = Check(
    "clock-jump",
    "warning",
    lambda it: abs(it.ms) - it.doubt_ms > _MOST_STEP_MS,
    lambda it: (
        f"Redis's clock stepped {approximate(abs(it.ms))} {'forward' if it.ms > 0 else 'back'} during the examination"
    ),
    "leases and due times shift by as much; renewals correct the leases, but jobs start early or late by the step",
    "let the clock slew instead of step (chronyd, ntpd -x); do not suspend the machine",
)
WENT_BACK: Final[Check[int]] = Check(
    "clock-went-back",
    "warning",
    lambda ahead_ms: ahead_ms > _MOST_AHEAD_MS,
    lambda ahead_ms: f"the last entry of the audit stream is {approximate(ahead_ms)} in the future",
    "Redis's clock went back, or a failover led to a server whose clock is behind: delayed jobs start late by that "
    "much, and leases last longer",
    "synchronize all servers with NTP; this passes once the clock has caught up",
)


def check_clocks(readings: Sequence[ClockReading]) -> Iterator[Finding]:
    """The findings about the clocks, from readings in the order in which they were taken."""
    if readings:
        best = min(readings, key=lambda reading: reading.trip_ms)
        yield from findings([OFFSET], ClockDifference(best.server_ms - best.wall_ms, best.trip_ms / 2))
    for first, second in pairwise(readings):
        step_ms = (second.server_ms - first.server_ms) - (second.steady_ms - first.steady_ms)
        yield from findings([JUMP], ClockDifference(step_ms, (first.trip_ms + second.trip_ms) / 2))


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
    "a score and a field store a number of 13 digits exactly": (
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
    "an empty list or set no longer exists": (
        "redis.call('ZADD', key, 0, '1') redis.call('ZREM', key, '1') return redis.call('TYPE', key).ok",
        "none",
    ),
    "entries with equal scores are sorted by id": (
        "redis.call('ZADD', key, 5, 'b', 5, 'c', 5, 'a') return table.concat(redis.call('ZRANGE', key, 0, -1))",
        "abc",
    ),
    "a list can be searched from its end": (
        "redis.call('RPUSH', key, 'a', 'b', 'a') return redis.call('LPOS', key, 'a', 'RANK', -1)",
        "2",
    ),
    "a script can continue after a failed command": (
        "redis.call('SET', key, 'x') return string.find(redis.pcall('LPUSH', key, 'y').err, 'WRONGTYPE') ~= nil",
        "true",
    ),
    "a missing field is false": ("return redis.call('HMGET', key, 'a')[1]", "false"),
    "a row of 1,000 words can be unpacked": (
        "local row = {} for i = 1, 1000 do row[i] = i end return redis.call('RPUSH', key, unpack(row))",
        "1000",
    ),
    "an expiry can be set and removed": (
        "redis.call('HSET', key, 'a', 1) redis.call('PEXPIRE', key, 60000) redis.call('PERSIST', key)"
        " return redis.call('PTTL', key)",
        "-1",
    ),
    "MAXLEN limits the length of a stream": (
        "for i = 1, 300 do redis.call('XADD', key, 'MAXLEN', '~', 10, '*', 'a', i) end"
        " return redis.call('XLEN', key) < 300",
        "true",
    ),
}
"""Required behavior -> Lua code that tries it, and the expected result."""
_REFUSALS: Final = ("NOPERM", "permission", "OOM command", "can't run this", "can't access")


@dataclass(frozen=True, slots=True)
class Conformance:
    """The results of the trials.

    Attributes:
        differing: behavior that differs -> what was found instead.
        untried: how many could not be tried, because the user may not write or memory is full.
    """

    differing: dict[str, str]
    untried: int


def read_conformance(queue: Settings) -> RoundTrips[Conformance]:
    """Try each behavior."""
    keys = [f"{queue.keys.prefix}probe:{new_request()}" for _ in _PROBES]
    replies = yield [_probe(key, body) for key, (body, _) in zip(keys, _PROBES.values(), strict=True)]
    found: dict[str, str] = {}
    untried = 0
    for (what, (_, right)), reply in zip(_PROBES.items(), replies, strict=True):
        if isinstance(reply, UsageError) or any(words in str(reply) for words in _REFUSALS):
            untried += 1
        elif str(reply) != right:
            found[what] = str(reply)
    return Conformance(found, untried)


def _probe(key: str, body: str) -> Operation[str]:
    script = scripts.script("probe", _TRY.replace("{body}", body))
    return Operation("conformance", script, (key,), (key + ":other",), identity)


UNTRIED: Final[Check[Conformance]] = Check(
    "conformance-untried",
    "note",
    lambda it: it.untried,
    lambda it: f"{it.untried} of {len(_PROBES)} behaviors that schedq relies on could not be tested",
    "the Redis user may not write, or memory is full",
    "connect as a user who may write to the queue's keys",
)
DIFFERS: Final[Check[tuple[str, str]]] = Check(
    "conformance",
    "error",
    lambda _: True,
    lambda it: f"this does not hold: {it[0]}; the result is {it[1]:.200}",
    "schedq's scripts rely on it; jobs may be lost or run twice on this server",
    "use Redis 6.2 or later, or Valkey; if it already is one of them, a proxy or a modification changes it: do not use "
    "it for jobs",
)


def check_conformance(found: Conformance) -> Iterator[Finding]:
    """The findings about behaviors that differ."""
    yield from findings([UNTRIED], found)
    for differing in found.differing.items():
        yield DIFFERS.finding(differing)


_PINGS: Final = 21
_SCRIPTS: Final = 11
_SLOW_MS: Final = 20.0
_STALL_MS: Final = 500.0
_SLOW_SCRIPT_MS: Final = 20.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Round-trip times in ms. Failed runs of the script are left out; 0 if all failed."""

    ping_median_ms: float
    ping_max_ms: float
    script_median_ms: float
    script_max_ms: float

    @property
    def script_extra_ms(self) -> float:
        """How much longer a script takes than a PING."""
        return self.script_median_ms - self.ping_median_ms

    def summary(self) -> dict[str, float]:
        """The times for `Report.server`, in ms."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


def read_latency(queue: Settings, monotonic: Callable[[], float] = monotonic) -> RoundTrips[Latency]:
    """Measure the time of some PINGs and of a read-only script."""
    pings = [ms for ms, _ in (yield from _timed([plain("PING")] * _PINGS, monotonic))]
    timed = yield from _timed([stats.stats(queue)] * _SCRIPTS, monotonic)
    scripts = [ms for ms, reply in timed if not isinstance(reply, SchedqError)]
    scripts = scripts[1:] or [0.0]  # the first run may include loading the script
    return Latency(median(pings), max(pings), median(scripts), max(scripts))


def _timed(operations: Sequence[Operation[Any]], monotonic: Callable[[], float]) -> RoundTrips[list[tuple[float, Any]]]:
    """The round-trip time of each operation, ms, and its reply."""
    found = []
    for operation in operations:
        began = monotonic()
        (reply,) = yield [operation]
        found.append((1000 * (monotonic() - began), reply))
    return found


def _ping(it: Latency) -> str:
    return f"a PING takes {it.ping_median_ms:.1f} ms (median of {_PINGS}; the longest {it.ping_max_ms:.1f} ms)"


SPEED: Final[tuple[Check[Latency], ...]] = (
    Check(
        "latency-high",
        "warning",
        lambda it: it.ping_median_ms > _SLOW_MS,
        _ping,
        "every claim and every settlement takes that long, which limits a worker's throughput; a busy server is one "
        "possible cause",
        "run workers close to Redis; check SLOWLOG GET, INFO commandstats and the machine's load",
    ),
    Check(
        "latency-stalls",
        "warning",
        lambda it: it.ping_median_ms <= _SLOW_MS and it.ping_max_ms > _STALL_MS,
        _ping,
        "the server or the network stalls at times; leases of a second or two may end during a stall",
        "check for slow commands (SLOWLOG GET), forks (INFO: latest_fork_usec) and swapping; keep visibility_ms at 5 s "
        "or more",
    ),
    Check(
        "scripts-slow",
        "warning",
        lambda it: it.script_extra_ms > _SLOW_SCRIPT_MS,
        lambda it: f"a script takes {it.script_extra_ms:.1f} ms more than a PING (median)",
        "every move of a job is a script, and all clients wait while one runs",
        "check the machine's load, and whether MONITOR or latency tracking is on: both slow down scripts",
    ),
)
