"""The engine with one thing broken: the search must notice each of these, or it could not notice a real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from unittest.mock import patch

from schedq.transitions import scripts


@dataclass(frozen=True)
class Bug:
    """What is broken, and where.

    Attributes:
        name: what it does wrong.
        script: the move.
        old: what stands there, as shipped (indentation and comments left out).
        new: what stands there instead.
        scenario: where it shows; the search looks there first.
    """

    name: str
    script: str
    old: str
    new: str
    scenario: str


BUGS: Final = (
    Bug(
        "settle does not look at the token",
        "settle",
        "job[1] == 'processing' and job[2] == token",
        "job[1] == 'processing'",
        "complete ∥ reclaim",
    ),
    Bug(
        "settle leaves the token in the hash",
        "settle",
        "redis.call('HDEL', key, 'claim_token', 'stop', 'unknown_since_ms')",
        "redis.call('HDEL', key, 'stop', 'unknown_since_ms')",
        "fail ∥ promote",
    ),
    Bug(
        "settle does not know what it has settled",
        "settle",
        "settled[1] == token and settled[2] == move",
        "false",
        "complete ∥ reclaim",
    ),
    Bug(
        "settle calls every other move of its token a repetition",
        "settle",
        "settled[1] == token and settled[2] == move",
        "settled[1] == token",
        "complete ∥ fail ∥ renew",
    ),
    Bug("settle leaves the lease", "settle", "redis.call('ZREM', leases, unpack(gone))", "", "fail ∥ promote"),
    Bug("settle leaves the entry", "settle", "take_claimed(id, whole(job[5]))", "", "fail ∥ promote"),
    Bug(
        "a release costs the attempt",
        "settle",
        "released < MOST_RELEASES and math.max(0, attempts - 1) or attempts",
        "attempts",
        "release ∥ reclaim",
    ),
    Bug(
        "a job that was asked to stop is retried",
        "settle",
        "elseif job[3] then",
        "elseif false then",
        "cancel ∥ complete",
    ),
    Bug("tokens are not fresh", "claim", "request .. '.' .. n", "'token'", "claim ∥ reclaim"),
    Bug("a claim counts no attempt", "claim", "whole(job[3]) + 1", "math.max(1, whole(job[3]))", "fail ∥ promote"),
    Bug("a paused queue is claimed from", "claim", "redis.call('EXISTS', paused) == 1", "false", "pause ∥ claim"),
    Bug(
        "who takes one of two jobs wakes nobody",
        "claim",
        "set_wake()\nreply[4] = reply[4] + 1",
        "reply[4] = reply[4] + 1",
        "a lost wake",
    ),
    Bug("a claim sets no lease", "claim", "redis.call('ZADD', leases, unpack(ends))", "", "claim ∥ reclaim"),
    Bug("what is not due is promoted", "promote", "local latest = now", "local latest = 1e14", "claim ∥ promote"),
    Bug("what was promoted stays", "promote", "redis.call('ZREM', delayed, unpack(ids))", "", "claim ∥ promote"),
    Bug(
        "the promoter sets no marker",
        "promote",
        "set_wake()\nif redis.pcall",
        "if redis.pcall",
        "pause ∥ claim",
    ),
    Bug("who stands by promotes", "promote", "holder ~= promoter_id and left", "false and left", "two promoters"),
    Bug(
        "live leases are taken",
        "reclaim",
        "leases, '-inf', ended_by, 'LIMIT'",
        "leases, '-inf', '+inf', 'LIMIT'",
        "complete ∥ reclaim",
    ),
    Bug(
        "reclaim leaves the entry",
        "reclaim",
        "if entries < 0 then return take_claimed(id, started) end\nreturn redis.call('LREM', processing, entries, id)",
        "return 0",
        "complete ∥ reclaim",
    ),
    Bug(
        "reclaim gives attempts without end",
        "reclaim",
        "elseif attempts >= most then",
        "elseif false then",
        "the last attempt ∥ reclaim",
    ),
    Bug(
        "the second lost lease costs no wait",
        "reclaim",
        "(crashes >= 2 and attempts < most)",
        "false",
        "two reclaimers",
    ),
    Bug(
        "a reclaim leaves the claim token",
        "reclaim",
        "'HDEL', key, 'claim_token', 'adopted_token'",
        "'HDEL', key, 'adopted_token'",
        "complete ∥ reclaim",
    ),
    Bug(
        "renew does not look at the token",
        "renew",
        "job[1] == 'processing' and job[2] == token",
        "job[1] == 'processing'",
        "complete ∥ fail ∥ renew",
    ),
    Bug(
        "recover gives away others' jobs",
        "recover",
        "string.sub(job[3], 1, #request + 1) == request .. '.'",
        "true",
        "two pumps ∥ reclaim",
    ),
    Bug("cancel leaves the entry", "cancel", "redis.call('LREM', pending, 0, id) > 0", "true", "cancel ∥ claim"),
    Bug("cancel does not recognise itself", "cancel", "if before then return before end", "", "cancel ∥ complete"),
    Bug(
        "cancel tears running jobs away",
        "cancel",
        "if runs then return false end",
        "if runs then return true end",
        "cancel ∥ complete",
    ),
    Bug(
        "delete leaves the entry",
        "delete",
        "for found, entries in pairs(out) do take_out(LISTS[found], entries) end",
        "",
        "delete ∥ claim",
    ),
    Bug(
        "delete leaves the due instant",
        "delete",
        "if taken[id] == 'delayed' then redis.call('ZREM', delayed, id) end",
        "",
        "delete ∥ claim",
    ),
    Bug(
        "requeue leaves the entry",
        "requeue",
        "if redis.call('LREM', here, nearer_end(id, here, job), id) == 0 then redis.call('LREM', there, -1, id) end",
        "",
        "requeue ∥ claim",
    ),
    Bug(
        "requeue does not recognise itself",
        "requeue",
        "local word = job and earlier_reply(job[3], request)",
        "local word",
        "requeue ∥ claim",
    ),
    Bug(
        "enqueue does not look what is there",
        "enqueue",
        "word = existing(n, payload, if_exists, own_mark)",
        "word = nil",
        "enqueue sent again ∥ claim",
    ),
    Bug(
        "enqueue of one fresh job does not look what is there",
        "enqueue",
        "redis.call('EXISTS', key) == 0 then\nlocal length",
        "true then\nlocal length",
        "enqueue of a fresh job sent again ∥ claim",
    ),
    Bug(
        "who puts the marker back does not",
        "wake",
        "allow_when_full(leases)\nset_wake()",
        "allow_when_full(leases)",
        "a swallowed wake",
    ),
    Bug(
        "trim looks at no status",
        "reclaim",
        "not job.err and job[1] == status",
        "not job.err",
        "a job id used again by another program ∥ trim",
    ),
    Bug(
        "purge takes what comes later",
        "purge",
        "enqueued > before and enqueued <= now",
        "false",
        "purge ∥ enqueue ∥ claim",
    ),
    Bug("a pause leaves the marker", "pause", "redis.call('DEL', wake)", "", "pause ∥ claim"),
    Bug(
        "a slot is fired whatever the stored one is",
        "fire",
        "if not score or tonumber(score) ~= turn.slot or turn.slot > now then",
        "if not score then",
        "two schedulers, one slot, crash anywhere",
    ),
    Bug(
        "the next slot is never written",
        "fire",
        "if #scores > 0 then redis.call('ZADD', schedules, unpack(scores)) end",
        "",
        "two schedulers, one slot, crash anywhere",
    ),
    Bug(
        "runs are not counted",
        "fire",
        "if not is_counted then turn.runs = turn.runs + 1 end",
        "",
        "two schedulers, one slot, crash anywhere",
    ),
    Bug(
        "a job that is put off stays where it was",
        "reschedule",
        "redis.call('ZADD', delayed, due, id)",
        "redis.call('LPUSH', pending, id)",
        "reschedule ∥ promote",
    ),
)


@contextmanager
def broken(bug: Bug) -> Iterator[None]:
    """The engine has this bug for a while."""
    whole = scripts.load(bug.script).source
    if bug.old not in whole:
        raise LookupError(f"{bug.script}.lua has no {bug.old!r} any more; mend the bug {bug.name!r}")
    script = scripts.script(bug.script, whole.replace(bug.old, bug.new))
    load = scripts.load
    with patch.object(scripts, "load", lambda name: script if name == bug.script else load(name)):
        yield
