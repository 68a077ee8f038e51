--[[
Give failed and cancelled jobs a new life: back to `pending`, attempts from 0.

The number of jobs taken per call sinks with the length of the two lists, which are searched for each that is not among
the oldest.

KEYS  1 pending (list)  2 failed (list)  3 cancelled (list)  4 stats (hash)  5 wake (zset)  6 paused (string)
      7 log (stream)  8 leases (zset)
ARGV  1 jobs prefix  2 clock  3 events channel  4 log size  5 request  6... ids
Returns  per job: yes | no (it is neither failed nor cancelled); fewer answers than ids means "send the rest again"
]]
local pending, failed, cancelled, stats, wake, paused, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local leases = KEYS[8]
local jobs, clock, events, log_size, request = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
--@include _clock
--@include _guard
--@include _mark
--@include _job
--@include _tally
--@include _wake
--@include _tell
--@include _once
local bad = misfit('list', pending, failed, cancelled) or misfit('zset', leases)
if bad then return bad end

local searched = redis.call('LLEN', failed) + redis.call('LLEN', cancelled)
local MOST_SEARCHED, OLDEST, LONG, spent = 200000, 400, 2000, 0
local is_oldest = {}
for _, list in ipairs(#ARGV > 15 and {failed, cancelled} or {}) do
  for _, id in ipairs(redis.call('LRANGE', list, -OLDEST, -1)) do is_oldest[id] = list end
end
local answers, ids = {}, {}
open_memory(leases)

-- From which end of a long list to search: both lists are in the order in which jobs came to them, the newest left.
local function nearer_end(id, list, job)
  local length = redis.call('LLEN', list)
  if is_oldest[id] or length < LONG then return -1 end
  local field = list == failed and 'last_error_at_ms' or 'cancelled_at_ms'
  local middle = redis.pcall('HGET', jobs .. redis.call('LINDEX', list, math.floor(length / 2)), field)
  local at = list == failed and job[5] or job[6]
  return type(middle) == 'string' and whole(at) > whole(middle) and 1 or -1
end

local function revive(id, job)
  local key = jobs .. id
  spent = spent + (is_oldest[id] and OLDEST or searched) + 200
  mark(id)
  -- Another program may have trimmed the entry, not the job.
  local here, there = failed, cancelled
  if job[1] == 'cancelled' then here, there = cancelled, failed end
  -- A damaged status may name the wrong one of the two.
  if redis.call('LREM', here, nearer_end(id, here, job), id) == 0 then redis.call('LREM', there, -1, id) end
  redis.call('HSET', key, 'status', 'pending', 'attempts', 0, 'request', request .. ' yes')
  redis.call('HDEL', key, 'crashes', 'released', 'stop', 'claim_token', 'settled_token', 'settled_move', 'adopted_token',
    'run_at_ms', 'promoted_at_ms', 'unknown_since_ms')
  redis.call('PERSIST', key)
  ids[#ids + 1] = id
  to_log('requeue', id, whole(job[4]))
  return 'yes'
end

for i = 6, #ARGV do
  if #answers > 0 and spent + OLDEST > MOST_SEARCHED then break end
  local job = read_job(ARGV[i], 'status', 'payload', 'request', 'attempts', 'last_error_at_ms', 'cancelled_at_ms',
    'tombstone')
  local answer = job and answered(job[3], request)
  if not answer then
    answer = (job and not job[7] and (job[1] == 'failed' or job[1] == 'cancelled')) and revive(ARGV[i], job) or 'no'
  end
  answers[#answers + 1] = answer
end
if #ids > 0 then
  redis.call('LPUSH', pending, unpack(ids))
  unmark(unpack(ids))
  tally('requeued_total', #ids)
  set_wake()
end
return answers
