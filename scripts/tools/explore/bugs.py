"""The engine with one bug injected. The search must detect each of them, or it could not detect a real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from unittest.mock import patch

from schedq.transitions import scripts


@dataclass(frozen=True)
class Bug:
    """A bug to inject.

    Attributes:
        name: the wrong behavior.
        script: the transition.
        old: the shipped code (without indentation and comments).
        new: the code that replaces it.
        scenario: the scenario that reveals it, which is searched first.
    """

    name: str
    script: str
    old: str
    new: str
    scenario: str


BUGS: Final = (
    Bug(
        "a running job does not hold its unique key",
        "enqueue_unique",
        "if status == 'processing' and lasts == 'done' then return id, job end",
        "",
        "unique: enqueue ∥ enqueue ∥ complete",
    ),
    Bug(
        "the index alone decides which job holds a unique key",
        "enqueue_unique",
        "if left > 0 and (not per or left <= per) then return id end",
        "do return id end",
        "unique: enqueue ∥ enqueue ∥ complete",
    ),
    Bug(
        "the unique key of a new job is not noted",
        "enqueue_unique",
        "if #notes > 0 then redis.call('HSET', unique_keys, unpack(notes)) else",
        "if #notes == 0 then",
        "unique: enqueue ∥ enqueue ∥ complete",
    ),
    Bug(
        "a replacement that is sent again replaces a newer one",
        "enqueue_unique",
        "if has_replaced(id, job or last) then return 'REPLACED ' .. (job or last).id, there end",
        "",
        "unique: enqueue ∥ enqueue ∥ complete",
    ),
    Bug(
        "a job that has been claimed holds its key although the rule is until its start",
        "enqueue_unique",
        "if waits and (lasts == 'done' or not job.started_at_ms) then return id, job end",
        "if waits then return id, job end",
        "unique until its start: enqueue ∥ retry ∥ enqueue",
    ),
    Bug(
        "requeue ignores the job that holds the unique key",
        "requeue",
        "local holder = job[8] and take_key(id, job[8], job[9])",
        "local holder",
        "unique: requeue ∥ enqueue ∥ claim",
    ),
    Bug(
        "settle does not check the token",
        "settle",
        "job[1] == 'processing' and job[2] == token",
        "job[1] == 'processing'",
        "complete ∥ reclaim",
    ),
    Bug(
        "settle leaves the token in the hash",
        "settle",
        "redis.call('HDEL', key, 'claim_token', 'unknown_since_ms')",
        "redis.call('HDEL', key, 'unknown_since_ms')",
        "fail ∥ promote",
    ),
    Bug(
        "settle does not recognize what it has settled",
        "settle",
        "settled[1] == token and settled[2] == move",
        "false",
        "complete ∥ reclaim",
    ),
    Bug(
        "settle treats any other transition with its token as a repetition",
        "settle",
        "settled[1] == token and settled[2] == move",
        "settled[1] == token",
        "complete ∥ fail ∥ renew",
    ),
    Bug("settle leaves the lease", "settle", "redis.call('ZREM', leases, unpack(gone))", "", "fail ∥ promote"),
    Bug("settle leaves the entry", "settle", "\ntake_claimed(id, whole(job[5]))", "", "fail ∥ promote"),
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
        "if job[3] then\nwrite(",
        "if false then\nwrite(",
        "cancel ∥ complete",
    ),
    Bug("tokens are not fresh", "claim", "request .. '.' .. n", "'token'", "claim ∥ reclaim"),
    Bug(
        "a claim does not count the attempt",
        "claim",
        "whole(job[3]) + 1",
        "math.max(1, whole(job[3]))",
        "fail ∥ promote",
    ),
    Bug(
        "a claim ignores that the queue is paused",
        "claim",
        "redis.call('EXISTS', paused) == 1",
        "false",
        "pause ∥ claim",
    ),
    Bug(
        "an expired job is run",
        "claim",
        "now >= (expires_at(job[14], job[8]) or math.huge)",
        "false",
        "expires ∥ claim",
    ),
    Bug(
        "a job that has begun expires",
        "claim",
        "if job[9] or job[14] then redis.call('HDEL', key, 'adopted_token', 'expires') end",
        "if job[9] then redis.call('HDEL', key, 'adopted_token') end",
        "expires ∥ claim",
    ),
    Bug(
        "an expired job stays in processing",
        "claim",
        "redis.call('LREM', processing, 1, id)\ntrim(cancelled,",
        "trim(cancelled,",
        "expires ∥ claim",
    ),
    Bug(
        "a claim that leaves a job sets no wake marker",
        "claim",
        "if has_more then set_wake() end",
        "",
        "a lost wake",
    ),
    Bug("a claim sets no lease", "claim", "redis.call('ZADD', leases, unpack(ends))", "", "claim ∥ reclaim"),
    Bug(
        "jobs are promoted before they are due",
        "promote",
        "if not is_due() then return 0, 0 end\nlocal ids = redis.call('ZRANGEBYSCORE', delayed, '-inf', now,",
        "local ids = redis.call('ZRANGEBYSCORE', delayed, '-inf', '1e14',",
        "claim ∥ promote",
    ),
    Bug(
        "a promoted job stays in delayed", "promote", "redis.call('ZREM', delayed, unpack(ids))", "", "claim ∥ promote"
    ),
    Bug(
        "the promoter sets no marker",
        "promote",
        "set_wake()\nif redis.pcall",
        "if redis.pcall",
        "pause ∥ claim",
    ),
    Bug("a standby promotes", "promote", "holder ~= promoter_id and left", "false and left", "two promoters"),
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
        "reclaim ignores the attempt limit",
        "reclaim",
        "elseif attempts >= most then",
        "elseif false then",
        "the last attempt ∥ reclaim",
    ),
    Bug(
        "the second lost lease causes no delay",
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
        "renew does not check the token",
        "renew",
        "job[1] == 'processing' and job[2] == token",
        "job[1] == 'processing'",
        "complete ∥ fail ∥ renew",
    ),
    Bug(
        "recover returns other claims' jobs",
        "recover",
        "string.sub(job[3], 1, #request + 1) == request .. '.'",
        "true",
        "two pumps ∥ reclaim",
    ),
    Bug("cancel leaves the entry", "cancel", "redis.call('LREM', pending, 0, id) > 0", "true", "cancel ∥ claim"),
    Bug(
        "cancel does not recognize a repetition", "cancel", "if before then return before end", "", "cancel ∥ complete"
    ),
    Bug(
        "cancel removes running jobs",
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
        "requeue does not recognize a repetition",
        "requeue",
        "local word = job and earlier_reply(job[3], request)",
        "local word",
        "requeue ∥ claim",
    ),
    Bug(
        "enqueue does not check for an existing job",
        "enqueue",
        "word = existing(n, payload, if_exists, own_mark)",
        "word = nil",
        "enqueue sent again ∥ claim",
    ),
    Bug(
        "enqueue of one fresh job does not check for an existing job",
        "enqueue",
        "redis.call('EXISTS', key) == 0 then\nlocal length",
        "true then\nlocal length",
        "enqueue of a fresh job sent again ∥ claim",
    ),
    Bug(
        "the wake marker is not put back",
        "wake",
        "if waits then set_wake() end",
        "",
        "a swallowed wake",
    ),
    Bug(
        "trim does not check the status",
        "reclaim",
        "not job.err and job[1] == status",
        "not job.err",
        "a job id used again by another program ∥ trim",
    ),
    Bug(
        "purge deletes jobs enqueued after it began",
        "purge",
        "enqueued > before and enqueued <= now",
        "false",
        "purge ∥ enqueue ∥ claim",
    ),
    Bug(
        "a claim ignores that a task is paused",
        "claim",
        "return task and not is_open(task) and task",
        "return nil",
        "pause of a task ∥ claim",
    ),
    Bug("a claim drops the jobs of a paused task", "claim", "hold(to_hold)", "", "pause of a task ∥ claim"),
    Bug(
        "a claim leaves the held jobs that it takes",
        "claim",
        "redis.call('ZREM', held, unpack(from_lanes))",
        "",
        "resume of a task ∥ claim ∥ reclaim",
    ),
    Bug(
        "a resume leaves the jobs that it puts back in their lane",
        "resume_task",
        "redis.call('ZREM', held, unpack(ids))",
        "",
        "resume of a task ∥ claim ∥ reclaim",
    ),
    Bug(
        "a resume does not lift the pause",
        "resume_task",
        "redis.call('HDEL', paused_tasks, task)",
        "redis.call('HEXISTS', paused_tasks, task)",
        "resume of a task ∥ claim ∥ reclaim",
    ),
    Bug(
        "a held job can't be cancelled",
        "cancel",
        "if redis.pcall('ZREM', held, id) == 1 then",
        "if false then",
        "held jobs ∥ cancel ∥ resume",
    ),
    Bug(
        "a deleted job stays held",
        "delete",
        "if #from_lanes > 0 then redis.call('ZREM', held, unpack(from_lanes)) end",
        "",
        "held jobs ∥ delete ∥ resume",
    ),
    Bug(
        "a limited worker takes any job",
        "claim",
        "return (not own or own[task]) and",
        "return",
        "limited workers",
    ),
    Bug(
        "no worker is woken for the jobs that a limited worker passes over",
        "claim",
        "for _, lane in ipairs(own and ready_lanes() or {}) do wake_lane(lane.task) end",
        "",
        "limited workers",
    ),
    Bug("a pause leaves the marker", "pause", "redis.call('DEL', wake)", "", "pause ∥ claim"),
    Bug(
        "a slot is fired without comparing the stored one",
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
        "a deferred job stays pending",
        "reschedule",
        "redis.call('ZADD', delayed, due, id)",
        "redis.call('LPUSH', pending, id)",
        "reschedule ∥ promote",
    ),
)


@contextmanager
def broken(bug: Bug) -> Iterator[None]:
    """The engine has this bug while the context is open."""
    whole = scripts.load(bug.script).source
    if bug.old not in whole:
        raise LookupError(f"{bug.script}.lua no longer contains {bug.old!r}; update the bug {bug.name!r}")
    script = scripts.script(bug.script, whole.replace(bug.old, bug.new))
    load = scripts.load
    with patch.object(scripts, "load", lambda name: script if name == bug.script else load(name)):
        yield
