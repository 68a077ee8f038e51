--[[
Delete a schedule and the account of its slots; jobs that it made stay.

KEYS  1 schedules (zset)  2 this schedule (hash)  3 its slots (list)  4 log (stream)
ARGV  1 clock  2 log size  3 id  4 the definition that was seen, or '' for any
Returns  yes | no (it is not there) | AGAIN (another definition is there)
]]
local schedules, schedule, slots, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local clock, log_size, id, seen = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
--@include _clock
--@include _guard
--@include _act
local bad = misfit('zset', schedules)
if bad then return bad end

if seen ~= '' and redis.pcall('HGET', schedule, 'definition') ~= seen then
  return redis.call('EXISTS', schedule) == 0 and 'no' or 'AGAIN'
end
if not redis.call('ZSCORE', schedules, id) and redis.call('EXISTS', schedule) == 0 then return 'no' end
-- Its entry goes last: what an error left of it is found again by that.
redis.call('DEL', schedule, slots)
redis.call('ZREM', schedules, id)
note_act('delete', id, '')
return 'yes'
