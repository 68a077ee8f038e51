--[[
Delete a schedule and the record of its slots; its jobs stay.

KEYS  schedules (zset), schedule (hash), slots (list), log (stream)
ARGV  clock, log_size
      id: the schedule
      seen: digest of the definition that the caller saw, or '' for any
Returns  yes | no (it does not exist) | AGAIN (the definition has changed)
]]
--@include clock
--@include checks
--@include audit_schedule
local bad = wrong_type('zset', schedules)
if bad then return bad end

if seen ~= '' and redis.pcall('HGET', schedule, 'definition') ~= seen then
  return redis.call('EXISTS', schedule) == 0 and 'no' or 'AGAIN'
end
if not redis.call('ZSCORE', schedules, id) and redis.call('EXISTS', schedule) == 0 then return 'no' end
-- The entry is removed last, so that a repetition finds the schedule if an error ends the script in between.
redis.call('DEL', schedule, slots)
redis.call('ZREM', schedules, id)
audit_schedule('delete', id, '')
return 'yes'
