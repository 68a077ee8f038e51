--[[
Give a delayed job another due instant; one that is past runs now, next in line.

KEYS  1 pending (list)  2 delayed (zset)  3 stats (hash)  4 wake (zset)  5 paused (string)  6 promoter (string)
      7 log (stream)
ARGV  1 jobs prefix  2 clock  3 events channel  4 log size  5 due channel  6 request  7 id  8 'in' | 'at'
      9 milliseconds
Returns  yes | no (it is not in `delayed`)
]]
local pending, delayed, stats, wake, paused, promoter, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local jobs, clock, events, log_size, due_channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local request, id, mode, ms = ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9])
local LAST_INSTANT = 253402300799999
--@include _clock
--@include _guard
--@include _job
--@include _tally
--@include _wake
--@include _due
--@include _tell
--@include _once
local bad = misfit('list', pending) or misfit('zset', delayed)
if bad then return bad end

local key = jobs .. id
local job = read_job(id, 'status', 'payload', 'request', 'attempts')
if not job then return 'no' end
local before = answered(job[3], request)
if before then return before end
if not redis.call('ZSCORE', delayed, id) then return 'no' end

local due = math.min(mode == 'in' and now + ms or ms, LAST_INSTANT)
open_memory(delayed)
if due <= now then
  -- Added before it is removed, so that an error in between leaves it somewhere.
  redis.call('RPUSH', pending, id)
  redis.call('HSET', key, 'run_at_ms', due, 'request', request .. ' yes', 'status', 'pending', 'promoted_at_ms',
    stamp)
  redis.call('ZREM', delayed, id)
  tally('promoted_total', 1)
  set_wake()
else
  local head = tonumber(redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or LAST_INSTANT + 1)
  redis.call('HSET', key, 'run_at_ms', due, 'request', request .. ' yes', 'status', 'delayed')
  redis.call('ZADD', delayed, due, id)
  if due < head then announce_due(due) end
end
to_log('reschedule', id, whole(job[4]))
return 'yes'
