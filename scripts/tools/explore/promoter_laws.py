"""Laws of promoters, beyond those that tests check in every state."""

from __future__ import annotations

from collections.abc import Iterator

from schedq.model.lifecycle import PROCESSING
from tests.gates import Gates
from tests.state import Key, State


def promoted(me: str, before: State, after: State, *, is_leader: bool) -> Iterator[str]:
    """One process leads, a standby only writes its own entry, and jobs that may start have a wake marker."""
    holder = before.holds("promoter", "string")[0]
    if is_leader and holder not in ("", me):
        yield f"{me} promoted while {holder} had the lease"
    if not is_leader and _but_standbys(before) != _but_standbys(after):
        yield "a standby promoter changed more than its own entry"
    waits = after.holds("pending", "list") or after.holds("open_gates", "zset")
    most = Gates(after).limits("").get("concurrency")
    waits = waits and not (most and len(after.ids(PROCESSING)) >= most)
    if is_leader and waits and "paused" not in after.keys and "wake" not in after.keys:
        yield "the promoter left waiting jobs without a wake marker"


def at_rest(state: State) -> Iterator[str]:
    """A promoter that rests, and has not been called, is not needed: otherwise a dead worker would not be noticed."""
    if "channel" not in state.holds("asleep", "hash"):
        return
    if "wake" in state.keys:
        yield "a promoter rests although there is a wake marker"
    may_start = state.holds("pending", "list") or state.holds("open_gates", "zset")
    if state.ids(PROCESSING) or (may_start and "paused" not in state.keys):
        yield "a promoter rests although there are jobs"
    if "0" in state.holds("groups", "zset").values():
        yield "a promoter rests although a group needs attention"


def _but_standbys(state: State) -> dict[str, Key]:
    return {name: key for name, key in state.keys.items() if name != "standbys"}
