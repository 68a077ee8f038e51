"""Bugs in what scripts do with runs of workflows."""

from __future__ import annotations

from typing import Final

from scripts.tools.explore.bug import Bug

_SUSPEND: Final = "runs: suspend ∥ send ∥ promote"
_ZOMBIE: Final = "runs: run ∥ zombie ∥ reclaim"
_ZOMBIE_WAITS: Final = "runs: a zombie suspends"
_BEFORE: Final = "runs: send before run"
_REQUEUE: Final = "runs: requeue"
_RACE: Final = "runs: race ∥ send"
_OVER: Final = "runs: start over ∥ send"
_LATE: Final = "runs: late or in time"
_CANCEL: Final = "runs: suspend ∥ cancel ∥ run now"
_MAP: Final = "runs: a map ∥ its jobs end ∥ promoter"
_MAP_ZOMBIE: Final = "runs: a map ∥ zombie ∥ reclaim"
_MAP_DELETED: Final = "runs: a map ∥ delete of its batch"
_MAP_CANCELLED: Final = "runs: a map ∥ cancel of its jobs ∥ promoter"
_PROGRESS: Final = "runs: progress ∥ lost leases"
_UNDO: Final = "runs: undo ∥ cancel ∥ send"
_UNDO_LATE: Final = "runs: undo ∥ zombie ∥ reclaim"
_UNDO_ZOMBIE: Final = "runs: undo ∥ zombie ∥ reclaim"
_UNDO_LOST: Final = "runs: undo ∥ lost leases ∥ stop"
_UNDO_PURGE: Final = "runs: undo ∥ purge ∥ delete"
_UNDO_REQUEUE: Final = "runs: requeue of what was undone"
_HOLDER: Final = "token ~= '' and job[1] == 'processing' and job[2] == token"

RUN_BUGS: Final = (
    Bug("a step is recorded without a look at the token", "step", _HOLDER, "true", _ZOMBIE),
    Bug("a memo is overwritten", "step", "if job[6] then return {'EXISTS', stops, job[6]} end", "", _ZOMBIE),
    Bug(
        "progress does not reset the attempts",
        "step",
        "'run', counted(run, memo, 1), 'attempts', '1', ...)",
        "'run', counted(run, memo, 1), ...)",
        _PROGRESS,
    ),
    Bug(
        "progress does not reset lost leases",
        "step",
        "redis.call('HDEL', key, 'crashes', 'released', 'until:'",
        "redis.call('HDEL', key, 'until:'",
        _PROGRESS,
    ),
    Bug("memos are not counted", "step", "counted(run, memo, 1)", "run", _ZOMBIE),
    Bug("a race keeps the messages of its losers", "step", "boxes[field] = arrival ..", "local _ = arrival ..", _RACE),
    Bug(
        "the memo of a loser stays",
        "step",
        "changes[#changes + 1], changes[#changes + 2] = 'step:' .. loser, returned",
        "",
        _RACE,
    ),
    Bug(
        "a message goes back behind those that came after it",
        "step",
        "boxes[field] = arrival .. ' ' .. text .. (boxes[field] ~= '' and '\\n' .. boxes[field] or '')",
        "boxes[field] = (boxes[field] ~= '' and boxes[field] .. '\\n' or '') .. arrival .. ' ' .. text",
        _RACE,
    ),
    Bug("an instant is fixed again", "until", "string.match(job[6] or '', '^%d+')", "nil", _CANCEL),
    Bug("a message is taken without a look at the token", "receive", _HOLDER, "true", _ZOMBIE_WAITS),
    Bug("a wait has ended before its time", "receive", "now < tonumber(ends)", "now < tonumber(ends) - 15000", _LATE),
    Bug("a wait never ends", "receive", "not arrival and now < tonumber(ends)", "not arrival", _LATE),
    Bug("a wait is decided twice", "receive", "if job[6] then return {'EXISTS', stops, job[6]} end", "", _ZOMBIE_WAITS),
    Bug("a message that came too late is taken", "receive", "tonumber(arrival) <= by", "true", _LATE),
    Bug(
        "a message that was taken stays in its box",
        "receive",
        "'inbox:' .. topic, left) else",
        "'inbox:' .. topic, job[8]) else",
        _BEFORE,
    ),
    Bug(
        "the instant of a wait is fixed again",
        "receive",
        "ends, since = ends or digits(",
        "ends, since = digits(",
        _LATE,
    ),
    Bug(
        "a suspension does not look into the box",
        "settle",
        "if topic and topic ~= '' and first_message(",
        "if false and first_message(",
        _SUSPEND,
    ),
    Bug(
        "a suspension costs the attempt",
        "settle",
        "'attempts', math.max(0, attempts - 1), 'waits'",
        "'attempts', attempts, 'waits'",
        _SUSPEND,
    ),
    Bug(
        "a suspension keeps the token",
        "settle",
        "redis.call('HDEL', key, 'claim_token', 'unknown_since_ms')\ncounts.suspended",
        "redis.call('HDEL', key, 'unknown_since_ms')\ncounts.suspended",
        _SUSPEND,
    ),
    Bug(
        "a suspended run is due at the last of its instants",
        "settle",
        "if due > now then delay_it() else",
        "if due > now then due = LAST_INSTANT delay_it() else",
        _SUSPEND,
    ),
    Bug(
        "a suspended run does not say what it waits for",
        "settle",
        "'waits', text, 'run', run)",
        "'run', run)",
        _SUSPEND,
    ),
    Bug(
        "a run that need not wait is nowhere",
        "settle",
        "if due > now then delay_it() else go_back() end",
        "if due > now then delay_it() end",
        _SUSPEND,
    ),
    Bug(
        "a claim leaves what the run waited for",
        "claim",
        "if job[17] then redis.call('HDEL', key, 'waits') end",
        "",
        _SUSPEND,
    ),
    Bug("a message wakes nothing", "send", "if waits_for_it() then", "if false then", _SUSPEND),
    Bug(
        "a message that wakes is not put into its box",
        "send",
        "'promoted_at_ms', stamp, unpack(fields))",
        "'promoted_at_ms', stamp)",
        _SUSPEND,
    ),
    Bug(
        "a message is put into its box twice",
        "send",
        "'\\n' .. message .. '\\n', 1, true) then return 'yes' end",
        "'\\n' .. message .. '\\n', 1, true) then end",
        _BEFORE,
    ),
    Bug("a woken run stays in delayed", "send", "redis.call('ZREM', delayed, id)", "", _SUSPEND),
    Bug("a woken run is in no line", "send", "redis.call('RPUSH', pending, id)", "", _SUSPEND),
    Bug(
        "a message to a job that has ended is accepted",
        "send",
        "if FINISHED[job[1]] or not job[2] then",
        "if not job[2] then",
        _REQUEUE,
    ),
    Bug(
        "a suspended run can be given another time",
        "reschedule",
        "if job[7] and due > now then return 'no' end",
        "",
        _CANCEL,
    ),
    Bug(
        "requeue keeps the failure that ended a run",
        "requeue",
        "for field, memo in pairs(open) do",
        "for field, memo in pairs({}) do",
        _REQUEUE,
    ),
    Bug(
        "requeue forgets what was done",
        "requeue",
        """if string.find(memo[3], '^%["%l+","error",') then""",
        "if true then",
        _REQUEUE,
    ),
    Bug(
        "a run starts over with its memos",
        "start_over",
        "if kind == 'step' or kind == 'until' or kind == 'tries' or",
        "if kind == 'until' or",
        _OVER,
    ),
    Bug(
        "a run that starts over loses its messages",
        "start_over",
        "if kind == 'step' or",
        "if kind == 'inbox' or kind == 'step' or",
        _OVER,
    ),
    Bug("a run starts over without a look at the token", "start_over", _HOLDER, "true", _OVER),
    Bug(
        "a run is suspended for jobs that have ended",
        "settle",
        "if group and status ~= 'running' and status ~= 'cancelling' then return now end",
        "",
        _MAP,
    ),
    Bug(
        "the last job does not wake its run",
        "settle",
        "if plan.wakes and wake_run(plan.wakes) then jobs_made = jobs_made + 1 end",
        "",
        _MAP,
    ),
    Bug(
        "a run that its jobs wake stays in delayed",
        "settle",
        "redis.call('ZREM', delayed, id)\nadd_to_total('promoted_total', 1)\nreturn true",
        "add_to_total('promoted_total', 1)\nreturn true",
        _MAP,
    ),
    Bug(
        "a run that its jobs wake is in no line",
        "settle",
        "redis.call('RPUSH', pending, id)\nredis.call('HSET', jobs .. id, 'status', 'pending', 'run_at_ms'",
        "redis.call('HSET', jobs .. id, 'status', 'pending', 'run_at_ms'",
        _MAP,
    ),
    Bug(
        "a batch that is deleted leaves its run asleep",
        "drop_group",
        "if found[4] and wake_run(found[4]) then has_woken = true end",
        "",
        _MAP_DELETED,
    ),
    Bug(
        "the promoter ends a batch without waking its run",
        "advance",
        "if plan.wakes and wake_run(plan.wakes) then jobs_made = jobs_made + 1 end",
        "",
        _MAP_CANCELLED,
    ),
    Bug(
        "an attempt that lost its claim makes the jobs of its run",
        "fill_group",
        "if held.err or held[1] ~= 'processing' or held[2] ~= token then",
        "if held.err then",
        _MAP_ZOMBIE,
    ),
    Bug(
        "a run that is discarded undoes nothing",
        "settle",
        "elseif left_open > 0 and (stops or said",
        "elseif false and (stops or said",
        _UNDO,
    ),
    Bug(
        "a run that undoes its steps keeps its attempts",
        "settle",
        "'run_at_ms', stamp, 'attempts', 0,",
        "'run_at_ms', stamp,",
        _UNDO,
    ),
    Bug(
        "a run that undoes its steps is in no line",
        "settle",
        "redis.call('HDEL', key, 'crashes', 'released')\ngo_back()",
        "redis.call('HDEL', key, 'crashes', 'released')",
        _UNDO,
    ),
    Bug(
        "a run that undoes its steps keeps its deadline",
        "settle",
        "without(without(run, 'deadline'), 'left')",
        "without(run, 'left')",
        _UNDO_LATE,
    ),
    Bug(
        "a cancelled run ends as failed although all is undone",
        "settle",
        "stops = undoing == '2' and left_open == 0 and move == 'fail'",
        "stops = nil",
        _UNDO,
    ),
    Bug(
        "a cancel ends a run that has steps to undo",
        "cancel",
        "if undoing_of(job[9]) or (open_undos(job[9]) > 0 and not runs) then",
        "if false then",
        _UNDO,
    ),
    Bug("a run whose workers died undoes nothing", "reclaim", "undoes = not undoing", "undoes = false", _UNDO_LOST),
    Bug("an undo that is done stays open", "step", "math.max(0, open_undos(run) - 1)", "open_undos(run)", _UNDO),
    Bug("an undo is stored without a look at the token", "add_undo", _HOLDER, "true", _UNDO_ZOMBIE),
    Bug(
        "an undo is stored again",
        "add_undo",
        "if job[6] then return {'EXISTS', stops, run, job[6]} end",
        "",
        _UNDO_ZOMBIE,
    ),
    Bug("a run with an undo is not listed", "add_undo", "redis.call('ZADD', undos, now + AUDIT_MS, id)", "", _UNDO),
    Bug(
        "a purge deletes a run that has steps to undo",
        "purge",
        "and (undoing_of(stored[8]) or open_undos(stored[8]) > 0) then",
        "and false then",
        _UNDO_PURGE,
    ),
    Bug(
        "a delete takes a run that has steps to undo",
        "delete",
        "or undoing_of(job[6]) or open_undos(job[6]) > 0)",
        ")",
        _UNDO_PURGE,
    ),
    Bug(
        "a run that was undone keeps its record when it is requeued",
        "requeue",
        "number_in(run, 'life') + 1), 'void', 1)",
        "number_in(run, 'life') + 1), 'void', 0)",
        _UNDO_REQUEUE,
    ),
)
