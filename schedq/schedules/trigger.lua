--[[
Enqueue a job of a schedule now, in addition to its slots; it counts as the last run, but not towards max_runs.

KEYS  pending (list), stats (hash), wake (zset), paused (string), asleep (hash), log (stream), schedule (hash)
ARGV  jobs, clock, log_size
      id: the schedule
      job_id: a new id
Returns  yes | no (there is no such schedule, or it has no payload)
]]
--@include clock
--@include checks
--@include totals
--@include wake
--@include audit_schedule
local bad = wrong_type('list', pending) or wrong_type('hash', schedule)
if bad then return bad end

local OPTIONS = {'max_attempts', 'backoff', 'timeout_ms', 'expires', 'headers', 'completed_ttl_ms', 'failed_ttl_ms',
  'gate', 'key'}
local stored = redis.call('HMGET', schedule, 'payload', unpack(OPTIONS))
if redis.call('EXISTS', jobs .. job_id) == 1 then return 'yes' end
if not stored[1] then return 'no' end

redis.call('LPUSH', pending, job_id)
local fields = {'id', job_id, 'payload', stored[1], 'status', 'pending', 'attempts', 0, 'enqueued_at_ms', now,
  'schedule', id}
for n, name in ipairs(OPTIONS) do
  if stored[1 + n] and stored[1 + n] ~= '' then
    fields[#fields + 1], fields[#fields + 2] = name, stored[1 + n]
  end
end
redis.call('HSET', schedule, 'last_job_id', job_id)
redis.call('HSET', jobs .. job_id, unpack(fields))
add_to_total('enqueued_total', 1)
set_wake()
audit_schedule('trigger', id, job_id)
return 'yes'
