"""The server: its release, memory, persistence, replicas, script cache and speed, from INFO, CONFIG GET and timing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from schedq.doctor.checks import Check, Finding, findings, known, plain
from schedq.inspect.display import approximate, count
from schedq.model.records import whole
from schedq.transitions import RoundTrips, pairs

_SETTINGS: Final = ("appendfsync", "maxmemory", "min-replicas-to-write", "save", "timeout")
_FIXED: Final[dict[str, dict[tuple[int, ...], int]]] = {
    "Redis": {
        (6, 2): 20,
        (7, 2): 11,
        (7, 4): 11,
        (8, 2): 9,
        (8, 4): 6,
        (8, 6): 6,
        (8, 8): 2,
        (8, 10): 1,
    },
    "Valkey": {(7, 2): 13, (8, 0): 9, (8, 1): 7, (9, 0): 4, (9, 1): 0},
}
"""The first release of each series without the vulnerabilities below, according to the projects' release notes. For the
Redis series 6.2 and 7.2 the notes mention only the vulnerabilities in scripting."""
_UNTESTED: Final = {"dragonfly_version": "Dragonfly", "garnet_version": "Garnet", "keydb_version": "KeyDB"}
_NEARLY_FULL: Final = 0.9
_REPLICA: Final = re.compile(r"slave\d+")
_MOST_LAG_S: Final = 10
_MOST_BEHIND: Final = 2**20
_MANY_SCRIPTS: Final = 1000
_MUCH_FOR_SCRIPTS: Final = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica, as its primary sees it."""

    name: str
    state: str | None
    lag_s: int
    bytes_behind: int


@dataclass(frozen=True)
class ServerInfo:
    """What a server reports about itself.

    Attributes:
        info: the fields of INFO; empty if it was refused.
        config: the settings that CONFIG GET returned; managed servers and access rules may refuse it.
        is_embedded: schedq started it from a data folder.
    """

    info: Mapping[str, str]
    config: Mapping[str, str] = field(default_factory=dict)
    is_embedded: bool = False

    def number(self, name: str) -> int:
        """A field of INFO as a number; 0 if it is missing or not a number."""
        return whole(self.info.get(name))

    @property
    def untested(self) -> str:
        """Name and version of the server if schedq is not tested with it; '' for Redis and Valkey."""
        return next((f"{name} {self.info[key]}" for key, name in _UNTESTED.items() if key in self.info), "")

    @property
    def release(self) -> tuple[str, str]:
        """Name and version of the server."""
        name = "Valkey" if "valkey_version" in self.info else "Redis"
        return name, self.info.get(f"{name.lower()}_version", "")

    @property
    def policy(self) -> str:
        """The maxmemory-policy: which keys the server evicts when memory is full."""
        return self.info.get("maxmemory_policy", "noeviction")

    @property
    def memory_share(self) -> float:
        """Share of maxmemory in use, 1.0 is all; 0 without a limit."""
        limit = self.number("maxmemory")
        return self.number("used_memory") / limit if limit else 0.0

    @property
    def is_replica(self) -> bool:
        return self.info.get("role") == "slave"

    @property
    def replicas(self) -> list[Replica]:
        if self.is_replica:
            return []
        rows = [_fields(value) for name, value in self.info.items() if _REPLICA.fullmatch(name)]
        offset = self.number("master_repl_offset")
        return [
            Replica(
                f"{row.get('ip')}:{row.get('port')}",
                row.get("state"),
                whole(row.get("lag")),
                offset - whole(row.get("offset")),
            )
            for row in rows
        ]

    def summary(self) -> dict[str, object]:
        """Basic facts for `Report.server`."""
        name, version = self.release
        mode = self.info.get("server_mode") or self.info.get("redis_mode", "")
        return {"server": name.lower(), "version": version, "mode": mode}


def read_server(*, is_embedded: bool = False) -> RoundTrips[ServerInfo]:
    """Read INFO and the relevant settings."""
    replies = yield [plain("INFO"), *(plain("CONFIG", "GET", name) for name in _SETTINGS)]
    config = {name: value for pair in replies[1:] for name, value in pairs(known(pair, [])).items()}
    lines = [line for line in known(replies[0], "").splitlines() if not line.startswith("#")]
    return ServerInfo(dict(line.split(":", 1) for line in lines if ":" in line), config, is_embedded)


def _fields(text: str) -> dict[str, str]:
    """`ip=127.0.0.1,port=6380,state=online,offset=98,lag=0` as fields."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _upgrade(server: ServerInfo) -> str:
    """What to do about a release with known vulnerabilities; '' for one without."""
    name, version = server.release
    parts = tuple(int(part) for part in version.split(".") if part.isdigit())
    series, fixed = parts[:2], _FIXED[name]
    newest = max(fixed)
    if server.untested or len(parts) < 3 or series > newest or parts[2] >= fixed.get(series, math.inf):
        return ""
    if server.is_embedded:
        return (
            "an existing data folder keeps its kind of server, and a new folder uses the server that schedq[embedded] "
            "ships: schedq export each queue, and schedq import it into a new folder"
        )
    if series in fixed:
        return f"upgrade to {name} {series[0]}.{series[1]}.{fixed[series]} or later"
    return f"every release of this series is affected: upgrade to {name} {newest[0]}.{newest[1]}"


RELEASE: Final[tuple[Check[ServerInfo], ...]] = (
    Check(
        "server-untried",
        "warning",
        lambda it: it.untested,
        lambda it: f"the server is {it.untested}",
        "schedq is tested only with Redis and Valkey; behavior that it relies on may differ here",
        "use Redis 6.2 or later, or Valkey; see also the findings on conformance",
    ),
    Check(
        "version-known-bad",
        "warning",
        _upgrade,
        lambda it: f"the server is {' '.join(it.release)}",
        "clients that may send scripts can crash the server or run code in it (CVE-2024-31449, 2024-46981, "
        "2025-49844, 2025-46817 to 46819, 2026-23631), and a blocked client can crash it (CVE-2026-23479)",
        lambda it: (
            f"{_upgrade(it)}; if your distribution backported the fixes, silence this with --ignore version-known-bad"
        ),
    ),
)
_RAISE_MAXMEMORY: Final = "raise maxmemory, or find what fills the memory: redis-cli --bigkeys"
_WHEN_FULL: Final = (
    "when memory is full, the server refuses new jobs (QueueFull); schedq's workers keep draining the queue, but "
    "workers written in other programs stop"
)


def _memory_in_use(it: ServerInfo) -> str:
    used, limit = it.number("used_memory") / 2**20, it.number("maxmemory") / 2**20
    return f"{it.memory_share:.0%} of maxmemory is in use ({used:,.0f} of {limit:,.0f} MiB)"


MEMORY: Final[tuple[Check[ServerInfo], ...]] = (
    Check(
        "eviction",
        "error",
        lambda it: it.policy != "noeviction",
        lambda it: f"maxmemory-policy is {it.policy}",
        lambda it: (
            "when memory is full, the server deletes "
            + ("records that have a TTL" if it.policy.startswith("volatile") else "jobs, and whole lists of jobs")
        ),
        "CONFIG SET maxmemory-policy noeviction, and set the same in its configuration file",
    ),
    Check(
        "keys-evicted",
        "warning",
        lambda it: it.number("evicted_keys"),
        lambda it: f"{count(it.number('evicted_keys'), 'key was=keys were')} evicted since the server's start",
        "jobs or their records may be gone; the findings on orphans and ids without data show which",
        "give the server more memory, set noeviction, then restart it or run CONFIG RESETSTAT to clear this counter",
    ),
    Check(
        "memory-unlimited",
        "note",
        # A server that schedq started is one for development.
        lambda it: "maxmemory" in it.info and not it.number("maxmemory") and not it.is_embedded,
        "maxmemory is not set",
        "without a limit the kernel kills Redis when memory runs out, instead of Redis rejecting new jobs",
        "CONFIG SET maxmemory to less than the machine's memory",
    ),
    Check("memory-full", "error", lambda it: it.memory_share >= 1, _memory_in_use, _WHEN_FULL, _RAISE_MAXMEMORY),
    Check(
        "memory-nearly-full",
        "warning",
        lambda it: _NEARLY_FULL <= it.memory_share < 1,
        _memory_in_use,
        _WHEN_FULL,
        _RAISE_MAXMEMORY,
    ),
    Check(
        "clients-nearly-full",
        "warning",
        lambda it: it.number("connected_clients") >= it.number("maxclients") * _NEARLY_FULL > 0,
        lambda it: (
            f"{it.number('connected_clients'):,} of {it.number('maxclients'):,} connections (maxclients) are in use"
        ),
        "at the limit, the server refuses new connections of workers and producers",
        "raise maxclients, or close idle connections: CLIENT LIST names those of schedq",
    ),
    Check(
        "script-cache-full",
        "warning",
        lambda it: (
            it.number("number_of_cached_scripts") > _MANY_SCRIPTS
            or it.number("used_memory_scripts") > _MUCH_FOR_SCRIPTS
        ),
        lambda it: (
            f"{it.number('number_of_cached_scripts'):,} scripts are cached, "
            f"in {it.number('used_memory_scripts') / 2**20:,.1f} MiB"
        ),
        "schedq has about 25: some program generates a new script for each call, which fills the memory and slows "
        "every EVAL; newer servers evict other programs' scripts to make room",
        "make that program pass values as arguments; SCRIPT FLUSH frees the memory, and schedq reloads its scripts "
        "automatically",
    ),
)
_SWITCH_AOF_ON: Final = "CONFIG SET appendonly yes, and set the same in its configuration file"
_NOT_ON_DISK: Final = (
    "a restart loses whatever is not on disk, and the server may refuse writes until this succeeds (MISCONF)"
)
_SEE_ITS_LOG: Final = "read the server's log: usually the disk is full, or its folder is not writable"


def _has_no_aof(it: ServerInfo) -> bool:
    return it.info.get("aof_enabled", "1") != "1"


def _fails(field: str) -> Callable[[ServerInfo], bool]:
    return lambda it: it.info.get(field, "ok") != "ok"


PERSISTENCE: Final[tuple[Check[ServerInfo], ...]] = (
    Check(
        "no-persistence",
        "error",
        lambda it: _has_no_aof(it) and it.config.get("save") == "",
        "appendonly is no, and there are no snapshots",
        "a restart loses every job",
        _SWITCH_AOF_ON,
    ),
    Check(
        "snapshots-only",
        lambda it: "warning" if "save" in it.config else "error",
        lambda it: _has_no_aof(it) and it.config.get("save") != "",
        "appendonly is no",
        lambda it: (
            "a crash loses everything since the last snapshot"
            + ("" if "save" in it.config else "; the server does not reveal whether it takes any")
        ),
        _SWITCH_AOF_ON,
    ),
    Check(
        "appendfsync-no",
        "warning",
        lambda it: not _has_no_aof(it) and it.config.get("appendfsync") == "no",
        "appendfsync is no",
        "a power failure loses what the kernel has not written yet: up to half a minute of jobs",
        "CONFIG SET appendfsync everysec",
    ),
    Check(
        "log-fails",
        "error",
        _fails("aof_last_write_status"),
        "the last write to the append-only file failed",
        _NOT_ON_DISK,
        _SEE_ITS_LOG,
    ),
    Check(
        "log-rewrite-fails",
        "warning",
        _fails("aof_last_bgrewrite_status"),
        "the last rewrite of the append-only file failed",
        _NOT_ON_DISK,
        _SEE_ITS_LOG,
    ),
    Check(
        "snapshot-fails",
        "warning",
        _fails("rdb_last_bgsave_status"),
        "the last snapshot failed",
        _NOT_ON_DISK,
        _SEE_ITS_LOG,
    ),
    Check(
        "connections-time-out",
        "note",
        lambda it: it.config.get("timeout", "0") != "0",
        lambda it: f"the server closes connections that are idle for {it.config['timeout']} s (timeout)",
        "a worker that waits for jobs has to reconnect each time",
        "CONFIG SET timeout 0",
    ),
)
REPLICATION: Final[tuple[Check[ServerInfo], ...]] = (
    Check(
        "replica",
        "error",
        lambda it: it.is_replica,
        lambda it: f"the server is a replica of {it.info.get('master_host')}:{it.info.get('master_port')}",
        "it accepts no writes: no job can be enqueued or claimed here",
        "use the primary's address, or redis+sentinel://, which finds it",
    ),
    Check(
        "replicas-not-required",
        "note",
        lambda it: it.replicas and it.config.get("min-replicas-to-write") == "0",
        "the primary accepts writes even without a connected replica (min-replicas-to-write 0)",
        "a primary that is cut off from its replicas keeps accepting jobs, and a failover loses them",
        "CONFIG SET min-replicas-to-write 1 reduces that risk; replication stays asynchronous",
    ),
)
REPLICA_BEHIND: Final[Check[Replica]] = Check(
    "replica-behind",
    "warning",
    lambda it: it.state != "online" or it.lag_s > _MOST_LAG_S or it.bytes_behind > _MOST_BEHIND,
    lambda it: f"replica {it.name} is {it.state}, {it.bytes_behind:,} bytes and {approximate(1000 * it.lag_s)} behind",
    "a failover to it would lose the missing writes: finished jobs would run again, and new ones would be gone",
    "check its log and the network; a larger repl-backlog-size avoids full resynchronizations",
)


def check_server(server: ServerInfo) -> Iterator[Finding]:
    """The findings about a server's release, memory, persistence and replication."""
    yield from findings(RELEASE + MEMORY, server)
    if "aof_enabled" in server.info:
        yield from findings(PERSISTENCE, server)
    yield from findings(REPLICATION, server)
    for replica in server.replicas:
        yield from findings([REPLICA_BEHIND], replica)
