"""Which server this is, and whether its release is bad for what schedq does: scripts and blocked clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from schedq.doctor.finding import Finding
from schedq.doctor.server import Server

_FIXED: Final = {
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
"""The first release of each series without the flaws below, after the projects' release notes. Of the Redis series 6.2
and 7.2 the notes name the flaws of scripts only."""
_FLAWS: Final = (
    "who may send scripts can crash the server or run code in it (CVE-2024-31449, 2024-46981, 2025-49844, 2025-46817 "
    "to "
    "46819, 2026-23631), and a blocked client can crash it (CVE-2026-23479)"
)
_UNTRIED: Final = {"dragonfly_version": "Dragonfly", "garnet_version": "Garnet", "keydb_version": "KeyDB"}


_NEW_FOLDER: Final = (
    "this data folder keeps the kind of server that wrote it, and a new one takes the server that schedq[embedded] "
    "ships: schedq export each queue, and schedq import it into a new folder"
)


def judge(server: Server, *, is_embedded: bool = False) -> Iterator[Finding]:
    """The findings about a server's release."""
    for name, other in _UNTRIED.items():
        if name in server.info:
            yield Finding(
                "server-untried",
                "warning",
                f"the server is {other} {server.info[name]}",
                "schedq is tested on Redis and Valkey only; what the engine stands on may not hold here",
                "use Redis 6.2 or later, or Valkey; see also what is said of conformance",
            )
            return
    name = "Valkey" if "valkey_version" in server.info else "Redis"
    version = server.info.get("valkey_version") or server.info.get("redis_version", "")
    parts = tuple(int(part) for part in version.split(".") if part.isdigit())
    if len(parts) < 3:
        return
    series, patch = parts[:2], parts[2]
    fixed = _FIXED[name]
    newest = max(fixed)
    if series > newest or (series in fixed and patch >= fixed[series]):
        return
    if is_embedded:
        remedy = _NEW_FOLDER
    elif series in fixed:
        remedy = f"upgrade to {name} {series[0]}.{series[1]}.{fixed[series]} or later"
    else:
        remedy = f"no release of this series is without them: move to {name} {newest[0]}.{newest[1]}"
    yield Finding(
        "version-known-bad",
        "warning",
        f"the server is {name} {version}",
        _FLAWS,
        f"{remedy}; a distribution may have mended it under the old number: then pass over this by --ignore",
    )
