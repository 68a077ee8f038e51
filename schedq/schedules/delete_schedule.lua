--[[
Delete a schedule and the account of its slots; jobs that it made stay.

KEYS  schedules (zset), schedule (hash), slots (list), log (stream)
ARGV  clock, log_size
      id: the schedule
      seen: digest of the definition that the caller saw, or '' for any
Returns  yes | no (it is not there) | AGAIN (another definition is there)
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
-- Its entry goes last: what an error left of it is found again by that.
redis.call('DEL', schedule, slots)
redis.call('ZREM', schedules, id)
audit_schedule('delete', id, '')
return 'yes'
