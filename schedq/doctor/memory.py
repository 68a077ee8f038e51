"""Memory: whether keys are evicted, and whether there is room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from schedq.doctor.finding import Finding, many
from schedq.doctor.server import Server

_NEARLY_FULL: Final = 0.9


def judge(server: Server) -> Iterator[Finding]:
    """The findings about a server's memory."""
    policy = server.info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield Finding(
            "eviction",
            "error",
            f"maxmemory-policy is {policy}",
            "when memory is full the server deletes "
            + (
                "records that have a time to live" if policy.startswith("volatile") else "jobs, and whole lists of them"
            ),
            "CONFIG SET maxmemory-policy noeviction, and the same in its configuration file",
        )
    if evicted := server.number("evicted_keys"):
        yield Finding(
            "keys-evicted",
            "warning",
            f"{many(evicted, 'key was=keys were')} evicted since the server's start",
            "jobs may be gone, or their records; what is said of orphans and of ids without data shows which",
            "give it more memory, set noeviction, and restart it or CONFIG RESETSTAT to forget this",
        )
    limit, used = server.number("maxmemory"), server.number("used_memory")
    if limit == 0 and "maxmemory" in server.info:
        yield Finding(
            "memory-unlimited",
            "note",
            "maxmemory is not set",
            "if memory runs out the kernel ends the server, and does not refuse new jobs before",
            "CONFIG SET maxmemory to less than the machine has",
        )
    elif limit and used >= limit * _NEARLY_FULL:
        is_full = used >= limit
        yield Finding(
            "memory-full" if is_full else "memory-nearly-full",
            "error" if is_full else "warning",
            f"{used / limit:.0%} of maxmemory is in use ({used / 2**20:,.0f} of {limit / 2**20:,.0f} MiB)",
            "full, the server refuses new jobs (QueueFull) and programs of other make stand still; schedq's workers "
            "drain on",
            "raise maxmemory, or find what fills it: redis-cli --bigkeys",
        )
    most, connected = server.number("maxclients"), server.number("connected_clients")
    if most and connected >= most * _NEARLY_FULL:
        yield Finding(
            "clients-nearly-full",
            "warning",
            f"{connected:,} of {most:,} connections (maxclients) are in use",
            "workers and producers that connect next are refused",
            "raise maxclients, or close what is idle: CLIENT LIST names schedq's connections",
        )
