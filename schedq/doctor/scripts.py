"""The server's script cache: whether it is filled by others, and whether it has what a live promoter sends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from schedq import lua
from schedq.doctor.asking import known, plain
from schedq.doctor.finding import Finding
from schedq.doctor.server import Server
from schedq.operations import Flow

_MANY: Final = 1000
_MUCH: Final = 32 * 2**20


def judge(server: Server) -> Iterator[Finding]:
    """The findings about the cached scripts."""
    count, size = server.number("number_of_cached_scripts"), server.number("used_memory_scripts")
    if count > _MANY or size > _MUCH:
        yield Finding(
            "script-cache-full",
            "warning",
            f"{count:,} scripts are cached, in {size / 2**20:,.1f} MiB",
            "schedq's are some 25: a program makes up a new script each time, which fills the memory and slows every "
            "EVAL; "
            "newer servers throw out others' scripts for them",
            "let that program pass values as arguments; SCRIPT FLUSH frees them, and schedq teaches its own again by "
            "itself",
        )


def look() -> Flow[bool]:
    """Whether this release's promoter script is cached; True if that may not be asked."""
    (answer,) = yield [plain("SCRIPT", "EXISTS", lua.load("promote").sha)]
    return bool(known(answer, [1])[0])


def judge_cached(queue: str, *, is_cached: bool, has_promoter: bool) -> Iterator[Finding]:
    """Whether a live promoter's script is missing: it sends it once a second."""
    if has_promoter and not is_cached:
        yield Finding(
            "scripts-differ",
            "note",
            "a promoter is alive, and the script that this release would send is not cached",
            "that process is of another release of schedq, or somebody flushes the scripts again and again; both work",
            "finish the deployment; look for SCRIPT FLUSH in INFO commandstats",
            queue=queue,
        )
