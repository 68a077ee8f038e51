--[[
Call a group off: no job of it is made from now on. The promoter cancels those that wait or run, a page at a time.

KEYS  groups (zset), promoter (string), wake (zset), paused (string), asleep (hash)
ARGV  clock, due_channel, group_keys
      name: of the group
      generation: only a group of this one; '' for any
Returns  cancelling | no (it has ended, is of another generation, or there is none)
]]
--@include clock
--@include checks
--@include numbers
--@include wake
--@include due
local key = group_keys .. name
local bad = wrong_type('zset', groups) or wrong_type('hash', key)
if bad then return bad end
local status, its = unpack(redis.call('HMGET', key, 'status', 'generation'))
if generation ~= '' and its ~= generation then return 'no' end
if status ~= 'running' and status ~= 'cancelling' then return 'no' end
allow_when_full(groups)
redis.call('ZADD', groups, 0, name)
redis.call('HSET', key, 'status', 'cancelling', 'becomes', 'cancelled', 'cancelled_at_ms', stamp)
announce_due(now)
return 'cancelling'
