"""What is measured and tried on the server: its clock, its speed, and the behaviours that the engine depends on."""

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
        wall_ms: this machine's clock, in the middle of the question.
        steady_ms: its monotonic clock then.
        trip_ms: how long the question took.
    """

    server_ms: float
    wall_ms: float
    steady_ms: float
    trip_ms: float


@dataclass(frozen=True, slots=True)
class ClockDifference:
    """How far one clock is ahead of another, ms, and how much of that the time of the questions may account for."""

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
    """How far the last entry of a queue's audit stream is in the future: its ids can't go back. 0 if not known."""
    last, time = yield [plain("XREVRANGE", log, "+", "-", "COUNT", 1), plain("TIME")]
    if not known(last, []) or not known(time, []):
        return 0
    return int(str(last[0][0]).partition("-")[0]) - int(time[0]) * 1000 - int(time[1]) // 1000


OFFSET: Final[Check[ClockDifference]] = Check(
    "clock-offset",
    "warning",
    lambda it: abs(it.ms) - it.doubt_ms > _MOST_APART_MS,
    lambda it: f"Redis's clock is {approximate(abs(it.ms))} {'ahead of' if it.ms > 0 else 'behind'} this machine's",
    "a run_at that this machine computes is off by that; delays are not, as Redis adds them up. Programs of other make "
    "write claims by their own clock, and their reclaimers go by it",
    "let both keep time by NTP",
)
JUMP: Final[Check[ClockDifference]] = Check(
    "clock-jump",
    "warning",
    lambda it: abs(it.ms) - it.doubt_ms > _MOST_STEP_MS,
    lambda it: (
        f"Redis's clock stepped {approximate(abs(it.ms))} {'forward' if it.ms > 0 else 'back'} during the examination"
    ),
    "leases and due times move by as much; renewals mend the leases, and jobs start early or late by the step",
    "let it slew, not step (chronyd, ntpd -x); do not suspend the machine",
)
WENT_BACK: Final[Check[int]] = Check(
    "clock-went-back",
    "warning",
    lambda ahead_ms: ahead_ms > _MOST_AHEAD_MS,
    lambda ahead_ms: f"the last entry of the audit stream is {approximate(ahead_ms)} in the future",
    "Redis's clock has gone back since, or a failover led to a server whose clock is behind: what is delayed starts "
    "late by that, leases are long",
    "let all servers keep time by NTP; it passes when the clock has caught up",
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
"""What must hold -> Lua that tries it, and what that returns."""
_REFUSALS: Final = ("NOPERM", "permission", "OOM command", "can't run this", "can't access")


@dataclass(frozen=True, slots=True)
class Conformance:
    """What was tried.

    Attributes:
        differing: what does not hold -> what was found instead.
        untried: how many could not be tried, as the user may not write, or memory is full.
    """

    differing: dict[str, str]
    untried: int


def read_conformance(queue: Settings) -> RoundTrips[Conformance]:
    """Try each behaviour."""
    keys = [f"{queue.keys.prefix}probe:{new_request()}" for _ in _PROBES]
    answers = yield [_probe(key, body) for key, (body, _) in zip(keys, _PROBES.values(), strict=True)]
    found: dict[str, str] = {}
    untried = 0
    for (what, (_, right)), answer in zip(_PROBES.items(), answers, strict=True):
        if isinstance(answer, UsageError) or any(words in str(answer) for words in _REFUSALS):
            untried += 1
        elif str(answer) != right:
            found[what] = str(answer)
    return Conformance(found, untried)


def _probe(key: str, body: str) -> Operation[str]:
    script = scripts.script("probe", _TRY.replace("{body}", body))
    return Operation("conformance", script, (key,), (key + ":other",), identity)


UNTRIED: Final[Check[Conformance]] = Check(
    "conformance-untried",
    "note",
    lambda it: it.untried,
    lambda it: f"{it.untried} of {len(_PROBES)} behaviours that the engine stands on were not tried",
    "the Redis user may not write, or memory is full",
    "examine it as a user who may write to the queue's keys",
)
DIFFERS: Final[Check[tuple[str, str]]] = Check(
    "conformance",
    "error",
    lambda _: True,
    lambda it: f"it does not hold that {it[0]}: the answer is {it[1]:.200}",
    "schedq's scripts rely on it; jobs may be lost or run twice on this server",
    "use Redis 6.2 or later, or Valkey; if this is one of them, it is behind a proxy, or altered: do not use it for "
    "jobs",
)


def check_conformance(found: Conformance) -> Iterator[Finding]:
    """The findings about behaviours that do not hold."""
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
    """Round trips in ms; of the script without those that failed, and 0 if all did."""

    ping_median_ms: float
    ping_max_ms: float
    script_median_ms: float
    script_max_ms: float

    @property
    def script_extra_ms(self) -> float:
        """How much longer a script takes than a PING."""
        return self.script_median_ms - self.ping_median_ms

    def summary(self) -> dict[str, float]:
        """The figures for programs, in ms."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


def read_latency(queue: Settings, monotonic: Callable[[], float] = monotonic) -> RoundTrips[Latency]:
    """Time some PINGs, and a script that reads."""
    pings = [ms for ms, _ in (yield from _timed([plain("PING")] * _PINGS, monotonic))]
    timed = yield from _timed([stats.stats(queue)] * _SCRIPTS, monotonic)
    scripts = [ms for ms, answer in timed if not isinstance(answer, SchedqError)]
    scripts = scripts[1:] or [0.0]  # the first one may have had to be loaded
    return Latency(median(pings), max(pings), median(scripts), max(scripts))


def _timed(operations: Sequence[Operation[Any]], monotonic: Callable[[], float]) -> RoundTrips[list[tuple[float, Any]]]:
    """The round trip of each operation, ms, and the answer."""
    found = []
    for operation in operations:
        began = monotonic()
        (answer,) = yield [operation]
        found.append((1000 * (monotonic() - began), answer))
    return found


def _ping(it: Latency) -> str:
    return f"a PING takes {it.ping_median_ms:.1f} ms (median of {_PINGS}; the longest {it.ping_max_ms:.1f} ms)"


SPEED: Final[tuple[Check[Latency], ...]] = (
    Check(
        "latency-high",
        "warning",
        lambda it: it.ping_median_ms > _SLOW_MS,
        _ping,
        "every claim and every settlement waits for that: it bounds what a worker gets done, and a busy server is one "
        "reason",
        "run workers near Redis; look at SLOWLOG GET, at INFO commandstats, and at the machine's load",
    ),
    Check(
        "latency-stalls",
        "warning",
        lambda it: it.ping_median_ms <= _SLOW_MS and it.ping_max_ms > _STALL_MS,
        _ping,
        "the server or the network stands still at times; leases of a second or two may end meanwhile",
        "look for slow commands (SLOWLOG GET), for forks (INFO: latest_fork_usec), for swap; keep visibility_ms at 5 s "
        "or more",
    ),
    Check(
        "scripts-slow",
        "warning",
        lambda it: it.script_extra_ms > _SLOW_SCRIPT_MS,
        lambda it: f"a script takes {it.script_extra_ms:.1f} ms more than a PING (median)",
        "all moves of jobs are scripts, and everybody waits while one runs",
        "look at the machine's load, and for debuggers or monitors: MONITOR and latency tracking slow scripts",
    ),
)
