"""Bugs in how groups count, continue and end."""

from __future__ import annotations

from typing import Final

from scripts.tools.explore.bug import Bug

_TWO: Final = "groups: two children, one fails ∥ promoter"
_ONE_PLACE: Final = "groups: one place, three children"
_RECLAIM: Final = "groups: the last child ∥ reclaim ∥ late end"
_CANCEL: Final = "groups: the last child ∥ cancel of the group"
_PAGES: Final = "groups: pages ∥ children end"
_PEOPLE: Final = "groups: cancel of a child ∥ delete of another"
_REQUEUE: Final = "groups: a failed child is requeued ∥ the last one ends"
_RETRY: Final = "groups: retry ∥ promoter ∥ requeue"
_FOREIGN: Final = "groups: a worker written from the guide ∥ audit"
_PURGE: Final = "groups: purge ∥ promoter ∥ end"
_CHAIN: Final = "groups: a chain ∥ promoter"
_EXPIRE: Final = "groups: children that expire ∥ claim"
_CLOSED: Final = "plan.closed and waiting <= 0"

GROUP_BUGS: Final = (
    Bug("a bit is set, but not counted", "settle", "group.ended = group.ended + 1\n", "\n", _TWO),
    Bug(
        "an end is counted, but its bit is not set",
        "settle",
        "redis.pcall('SETBIT', group.counted_key, number, 1)",
        "",
        _TWO,
    ),
    Bug("a failed child counts as one that completed", "settle", "has_completed and 1 or 0", "1", _TWO),
    Bug(
        "an attempt that is retried counts as an end",
        "settle",
        "if job[10] and move ~= 'undo' and (stops or move == 'fail') then",
        "if job[10] then",
        _ONE_PLACE,
    ),
    Bug("a failure does not count", "settle", "if job[10] and move ~= 'undo' and (stops", "if nil and (stops", _TWO),
    Bug("a completion does not count", "settle", "if job[10] then tell(job[10], id, true, text, note) end", "", _TWO),
    Bug(
        "a group has one place too many",
        "settle",
        "plan.concurrency - live, waiting",
        "plan.concurrency + 1 - live, waiting",
        _ONE_PLACE,
    ),
    Bug(
        "a group ends before its last child",
        "settle",
        "ended == group.total, room",
        "ended >= group.total - 1, room",
        _TWO,
    ),
    Bug("a group ends while it is filled", "settle", _CLOSED, "waiting <= 0", _PAGES),
    Bug(
        "the call at the end is not made",
        "settle",
        "make_call(id, filled_in(call, plan.marker, result))",
        "",
        _ONE_PLACE,
    ),
    Bug(
        "a group that is called off makes children",
        "advance",
        "if group.status == 'cancelling' then return live <= 0, false, ended end",
        "",
        _CANCEL,
    ),
    Bug(
        "cancel does not tell the group",
        "cancel",
        "if job[7] then tell_group(job[7], id, false, 'cancelled') end",
        "",
        _PEOPLE,
    ),
    Bug(
        "delete does not tell the group",
        "delete",
        "if group then tell_group(group, id, false, 'deleted') end",
        "",
        _PEOPLE,
    ),
    Bug(
        "reclaim does not tell the group",
        "reclaim",
        "if job[21] and FINISHED[status] then tell_group",
        "if nil then tell_group",
        _RECLAIM,
    ),
    Bug(
        "a claim that cancels does not tell the group",
        "claim",
        "if group then tell_group(group, id, false, text) end",
        "",
        _EXPIRE,
    ),
    Bug(
        "a page that is sent again is added again",
        "fill_group",
        "items_start + group.total - at",
        "items_start",
        _PAGES,
    ),
    Bug("a page closes the group too early", "fill_group", "if close then", "if true then", _PAGES),
    Bug("requeue leaves the bit", "requeue", "redis.pcall('SETBIT', group.counted_key, number, 0)", "", _REQUEUE),
    Bug(
        "a retry leaves the bits",
        "advance",
        "if plan.numbered then redis.call('SETBIT', group.counted_key, child.number, 0) end",
        "",
        _RETRY,
    ),
    Bug("a retry stays in its generation", "retry_group", "'generation', generation, 'numbered'", "'numbered'", _RETRY),
    Bug("the audit finds nothing", "advance", "if not FINISHED[job[1]] then return end", "do return end", _FOREIGN),
    Bug(
        "a link begins before the one before has ended",
        "settle",
        "and succeeded < group.total",
        "and succeeded <= group.total",
        _CHAIN,
    ),
    Bug(
        "the next link is not made",
        "settle",
        "local payload, options = filled_in(",
        "do return false end local payload, options = filled_in(",
        _CHAIN,
    ),
    Bug(
        "the promoter passes over a mark",
        "advance",
        "has_more = attend(name) or has_more",
        "redis.call('ZADD', groups, digits(now + LOOK_AGAIN), name)",
        _PEOPLE,
    ),
    Bug(
        "the promoter does not count again",
        "advance",
        "redis.call('HSET', group.key, 'ended', ended, 'succeeded', succeeded)",
        "",
        _PEOPLE,
    ),
)
