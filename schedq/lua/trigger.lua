--[[
Make a job of a schedule now, beside its slots; it counts as the last run, and not against max_runs.

KEYS  1 pending (list)  2 stats (hash)  3 wake (zset)  4 paused (string)  5 log (stream)  6 this schedule (hash)
ARGV  1 jobs prefix  2 clock  3 log size  4 id  5 job id, fresh
Returns  yes | no (there is no such schedule, or it has no payload)
]]
local pending, stats, wake, paused, log, schedule = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local jobs, clock, log_size, id, job_id = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
--@include _clock
--@include _guard
--@include _job
--@include _tally
--@include _wake
--@include _act
local bad = misfit('list', pending) or misfit('hash', schedule)
if bad then return bad end

local stored = redis.call('HMGET', schedule, 'payload', 'max_attempts', 'backoff', 'timeout_ms')
if redis.call('EXISTS', jobs .. job_id) == 1 then return 'yes' end
if not stored[1] then return 'no' end

redis.call('LPUSH', pending, job_id)
local fields = {'id', job_id, 'payload', stored[1], 'status', 'pending', 'attempts', 0, 'enqueued_at_ms', now,
  'schedule', id}
for n, name in ipairs({'max_attempts', 'backoff', 'timeout_ms'}) do
  if stored[1 + n] and stored[1 + n] ~= '' then
    fields[#fields + 1], fields[#fields + 2] = name, stored[1 + n]
  end
end
redis.call('HSET', schedule, 'last_job_id', job_id)
redis.call('HSET', jobs .. job_id, unpack(fields))
tally('enqueued_total', 1)
set_wake()
note_act('trigger', id, job_id)
return 'yes'
