"""Replication and clusters: what a failover would take, and whether all of the cluster serves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from schedq.doctor.finding import Finding, span
from schedq.doctor.server import Server
from schedq.job import whole

_MOST_LAG_S: Final = 10
_MOST_BEHIND: Final = 2**20
_REPLICA: Final = re.compile(r"slave\d+")


def judge(server: Server) -> Iterator[Finding]:
    """The findings about a server's replicas."""
    info = server.info
    if info.get("role") == "slave":
        yield Finding(
            "replica",
            "error",
            f"the server is a replica of {info.get('master_host')}:{info.get('master_port')}",
            "it takes no writes: no job can be enqueued or claimed here",
            "use the primary's address, or redis+sentinel://, which finds it",
        )
        return
    replicas = [_fields(value) for name, value in info.items() if _REPLICA.fullmatch(name)]
    offset = server.number("master_repl_offset")
    for replica in replicas:
        name = f"{replica.get('ip')}:{replica.get('port')}"
        lag, behind = whole(replica.get("lag")), offset - whole(replica.get("offset"))
        if replica.get("state") != "online" or lag > _MOST_LAG_S or behind > _MOST_BEHIND:
            yield Finding(
                "replica-behind",
                "warning",
                f"replica {name} is {replica.get('state')}, {behind:,} bytes and {span(1000 * lag)} behind",
                "a failover to it would lose what it has not got: jobs come back that were done, others are gone",
                "look at its log and the network between; a larger repl-backlog-size spares it full copies",
            )
    if replicas and server.config.get("min-replicas-to-write") == "0":
        yield Finding(
            "replicas-not-required",
            "note",
            "the primary takes writes also while no replica follows (min-replicas-to-write 0)",
            "one that is cut off from the others goes on taking jobs, and a failover loses them",
            "CONFIG SET min-replicas-to-write 1 narrows that; replication stays asynchronous",
        )


def _fields(text: str) -> dict[str, str]:
    """`ip=127.0.0.1,port=6380,state=online,offset=98,lag=0` as fields."""
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)
