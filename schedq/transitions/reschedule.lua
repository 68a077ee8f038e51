--[[
Change when a delayed job is due. If the new instant has passed, the job runs now, next in line.

What a suspended run waits for is fixed, so it can only be woken: it looks again.

KEYS  pending (list), delayed (zset), leases (zset), stats (hash), wake (zset), paused (string), asleep (hash), promoter (string), log (stream)
ARGV  jobs, clock, log_size, due_channel
      request: a new id, by which a repeated request is recognized
      id: the job
      mode: 'in' | 'at'
      ms (number): from now, or since the epoch
Returns  yes | no (it is not in `delayed`, or is a suspended run) | expires EXPIRY DUE (it would expire before it is due; both in ms)
]]
local LAST_INSTANT = 253402300799999
--@include clock
--@include checks
--@include in_transit
--@include numbers
--@include expiry
--@include job
--@include totals
--@include wake
--@include due
--@include log
--@include idempotent
local bad = wrong_type('list', pending) or wrong_type('zset', delayed, leases)
if bad then return bad end

local key = jobs .. id
local job = read_job(id, 'status', 'payload', 'request', 'attempts', 'expires', 'enqueued_at_ms', 'waits')
if not job then return 'no' end
local before = earlier_reply(job[3], request)
if before then return before end
-- A lease of 0 means that an error ended the move of a run before.
if not redis.call('ZSCORE', delayed, id) and not (job[7] and redis.call('ZSCORE', leases, id) == '0') then return 'no' end

local due = math.min(mode == 'in' and now + ms or ms, LAST_INSTANT)
if job[7] and due > now then return 'no' end
local expiry = job[5] and whole(job[4]) == 0 and expires_at(job[5], job[6])
if expiry and due > now and due >= expiry then return 'expires ' .. digits(expiry) .. ' ' .. digits(due) end
allow_when_full(delayed)
if due <= now then
  local fields = {'id', id, 'run_at_ms', due, 'request', request .. ' yes', 'status', 'pending', 'promoted_at_ms', stamp}
  if job[7] then
    -- A run may be due so far ahead that what an error leaves in `delayed` would stay.
    mark_in_transit(id)
    redis.call('ZREM', delayed, id)
    redis.call('HSET', key, unpack(fields))
    redis.call('RPUSH', pending, id)
    unmark_in_transit(id)
  else
    -- Added before it is removed, so that an error in between can't lose the job.
    redis.call('RPUSH', pending, id)
    redis.call('HSET', key, unpack(fields))
    redis.call('ZREM', delayed, id)
  end
  add_to_total('promoted_total', 1)
  set_wake()
else
  local head = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or LAST_INSTANT + 1)
  redis.call('HSET', key, 'run_at_ms', due, 'request', request .. ' yes', 'status', 'delayed')
  redis.call('ZADD', delayed, due, id)
  if due < head then announce_due(due) end
end
write_log('reschedule', id, whole(job[4]))
return 'yes'
