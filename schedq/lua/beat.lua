--[[
Say that a worker lives and what it runs; hear whether it was asked to stop.

KEYS  1 workers (zset)  2 this worker (hash)  3 settings (hash)  4 tasks (hash)
      5 promoter (string)  6 standbys (hash)
ARGV  1 clock  2 worker id  3 ttl, ms  4... field, value, ...
Returns  {1 if it was asked to stop, else 0, how many of the queue's settings are written down, when it did so last by
         what is stored here, ms, or '', now, ms, the options of how many tasks are written down, what is
         to be taken by whoever promotes: 1 the promoter lease, 2 the first standby's place, 3 the second's, 0 nothing}
]]
local workers, me, settings, tasks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local promoter, standbys = KEYS[5], KEYS[6]
local clock, id, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
--@include _clock
--@include _guard
--@include _standby
local bad = misfit('zset', workers) or misfit('hash', me)
if bad then return bad end

local last = redis.call('ZSCORE', workers, id)
-- A removal comes first: it is allowed when memory is full, and opens the way for the rest.
redis.call('ZREMRANGEBYSCORE', workers, '-inf', now - 10 * ttl)
redis.call('ZREMRANGEBYSCORE', workers, now + 10 * ttl, '+inf')  -- from before the clock went back
redis.call('ZADD', workers, now, id)
redis.call('HSET', me, 'id', id, unpack(ARGV, 4))
redis.call('PEXPIRE', me, ttl)
local function written(hash)
  local count = redis.pcall('HLEN', hash)
  return type(count) == 'number' and count or 0
end
return {redis.call('HEXISTS', me, 'stop'), written(settings), last or '', stamp, written(tasks), vacancy()}
