"""Persistence: what a restart, or a power cut, would take."""

from __future__ import annotations

from collections.abc import Iterator

from schedq.doctor.finding import Finding
from schedq.doctor.server import Server

_AOF = "CONFIG SET appendonly yes, and the same in its configuration file"


def judge(server: Server) -> Iterator[Finding]:
    """The findings about what a server writes to disk."""
    info = server.info
    if "aof_enabled" not in info:
        return
    if info["aof_enabled"] != "1":
        yield _without_log(server)
    elif server.config.get("appendfsync") == "no":
        yield Finding(
            "appendfsync-no",
            "warning",
            "appendfsync is no",
            "a power cut takes what the kernel had not written yet: up to half a minute of jobs",
            "CONFIG SET appendfsync everysec",
        )
    for field, code, what in (
        ("aof_last_write_status", "log-fails", "the last write to the append-only file"),
        ("aof_last_bgrewrite_status", "log-rewrite-fails", "the last rewrite of the append-only file"),
        ("rdb_last_bgsave_status", "snapshot-fails", "the last snapshot"),
    ):
        if info.get(field, "ok") != "ok":
            yield Finding(
                code,
                "error" if code == "log-fails" else "warning",
                f"{what} failed",
                "what is not on disk is gone after a restart; and the server may refuse writes until one succeeds "
                "(MISCONF)",
                "look at the server's log: mostly the disk is full, or its folder may not be written",
            )
    if server.config.get("timeout", "0") != "0":
        yield Finding(
            "connections-time-out",
            "note",
            f"the server closes connections that were idle for {server.config['timeout']} s (timeout)",
            "a worker that waits for jobs reconnects each time",
            "CONFIG SET timeout 0",
        )


def _without_log(server: Server) -> Finding:
    if server.config.get("save", "?") == "":
        return Finding(
            "no-persistence", "error", "appendonly is no, and there are no snapshots", "a restart loses every job", _AOF
        )
    return Finding(
        "snapshots-only",
        "error" if "save" not in server.config else "warning",
        "appendonly is no",
        "a crash loses what came since the last snapshot"
        + ("; whether there are any may not be asked" if "save" not in server.config else ""),
        _AOF,
    )
