--[[
Delete the jobs on one page of a list or zset that were enqueued before an instant.

Running jobs are deleted too; their workers then get LOST. Pages begin at the old end, where no new jobs are added. A job
that belongs to a gate leaves its place there; claims and the promoter look at its key and gate again.

A run that has something to undo is cancelled instead, so it does that first; it is not counted.

KEYS  source (list or zset), leases (zset), stats (hash), resting (zset), groups (zset), wake (zset), paused (string), asleep (hash),
      promoter (string)
ARGV  jobs, clock, gate_keys, group_keys, due_channel
      before (number): jobs enqueued by then are deleted, ms; '' for now
      offset (number): how many entries to skip at the old end
      length (number): the most entries to look at
      kind: 'list' | 'zset' | 'pending' (a list that may contain leftover entries of cancelled jobs) | 'notes'
        (`broken`, whose entries are not ids)
Returns  {the instant, how many entries to skip next, how many were deleted, 1 if there are more, else 0}
]]
local MOST_FREED = 1048576  -- bytes of payloads, because freeing memory takes time
local ENDS = {pending = true, delayed = true, processing = true}  -- where a purge would end a run
--@include clock
--@include checks
--@include numbers
--@include totals
--@include tombstone
--@include note_met
--@include group_end
--@include undo
--@include wake
--@include due
local bad = wrong_type(kind == 'zset' and 'zset' or 'list', source) or wrong_type('zset', leases)
if bad then return bad end

before = before or now
if kind == 'notes' then
  local notes = redis.call('LLEN', source)
  redis.call('DEL', source)
  add_to_total('purged_total', notes)
  return {before, 0, notes, 0}
end
local ids = kind == 'zset' and redis.call('ZRANGE', source, offset, offset + length - 1)
  or redis.call('LRANGE', source, -offset - length, -offset - 1)
local gone, freed, more = 0, 0, #ids == length

local has_due = false  -- there is something to look at

local function leave_gate(id, gate, key)
  local running = gate_keys .. gate .. ':running'
  redis.pcall('ZREM', running, key .. ' ' .. id)
  redis.pcall('ZADD', resting, stamp, gate, stamp, gate .. ' ' .. key)
  has_due = true
end

-- Ask a run to undo what it has done, and then to end as cancelled.
local function undo_first(id, status, run)
  offset = offset + 1
  if undoing_of(run) then return end
  allow_when_full(leases)
  if status == 'processing' then
    redis.call('HSET', jobs .. id, 'stop', stamp)
  else
    redis.call('HSET', jobs .. id, 'run_at_ms', stamp, 'attempts', 0, 'run', to_undo(run, true), 'undoing', '')
    redis.call('HDEL', jobs .. id, 'crashes', 'released')
    if kind == 'zset' then redis.call('ZADD', source, stamp, id) end
    has_due = true
  end
end

local first, last, step = #ids, 1, -1
if kind == 'zset' then first, last, step = 1, #ids, 1 end
for i = first, last, step do
  if freed > MOST_FREED then more = true break end
  local id = ids[i]
  local stored = redis.pcall('HMGET', jobs .. id, 'enqueued_at_ms', 'status', 'entry_left', 'tombstone', 'gate', 'key', 'group', 'run')
  local enqueued, entry_left = whole(stored[1]), stored[3]
  -- An enqueue time in the future is damaged or from before the clock went back, so such a job is old and is deleted.
  if enqueued > before and enqueued <= now then
    offset = offset + 1
  elseif kind == 'pending' and entry_left and stored[2] == 'cancelled' then
    note_met(jobs .. id, entry_left, stored[4])
    redis.call('LREM', source, -1, id)
  elseif ENDS[stored[2] or ''] and (undoing_of(stored[8]) or open_undos(stored[8]) > 0) then
    undo_first(id, stored[2], stored[8])
  else
    local bytes = redis.pcall('HSTRLEN', jobs .. id, 'payload')
    freed = freed + (type(bytes) == 'number' and bytes or 0)
    if stored[7] then
      allow_when_full(leases)
      tell_group(stored[7], id, false, 'deleted')
      has_due = true
    end
    -- The entry is removed last, so that a repetition finds the job if an error ends the script in between.
    delete_record(jobs .. id, entry_left)
    redis.call('ZREM', leases, id)
    local takes_part = stored[2] == 'pending' or stored[2] == 'processing'
    if stored[5] and takes_part then leave_gate(id, stored[5], stored[6] or '') end
    if kind == 'zset' then redis.call('ZREM', source, id) else redis.call('LREM', source, -1, id) end
    gone = gone + 1
  end
end
add_to_total('purged_total', gone)
if has_due then announce_due(now) end
return {before, offset, gone, more and 1 or 0}
