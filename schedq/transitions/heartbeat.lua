--[[
Record a worker's heartbeat and what it runs; return whether it was asked to stop.

KEYS  workers (zset), this_worker (hash), settings (hash), tasks (hash), promoter (string), standbys (hash)
ARGV  clock
      id: the worker's id
      ttl (number): ms until the worker counts as dead
      fields...: its record: field, value, ...
Returns  {1 if it was asked to stop, else 0, how many of the queue's settings are stored, its last stored heartbeat in ms
         or '', now in ms, how many tasks have stored options, what a promoter without a part should take: 1 the
         promoter lease, 2 the first standby place, 3 the second, 0 nothing}
]]
--@include clock
--@include checks
--@include standby
local bad = wrong_type('zset', workers) or wrong_type('hash', this_worker)
if bad then return bad end

-- The best vacant part for a process without one: 1 the lease itself, 2 or 3 a standby place, 0 none. If only the first
-- place is vacant, it is left to the second standby.
local function vacancy()
  if redis.call('EXISTS', promoter) == 0 then return 1 end
  local first, second = read_standbys()
  if first then return second and 0 or 3 end
  return second and 0 or 2
end

local last = redis.call('ZSCORE', workers, id)
-- A removal comes first: Redis allows it when memory is full, and then allows the rest of the script.
redis.call('ZREMRANGEBYSCORE', workers, '-inf', now - 10 * ttl)
redis.call('ZREMRANGEBYSCORE', workers, now + 10 * ttl, '+inf')  -- from before the clock went back
redis.call('ZADD', workers, now, id)
redis.call('HSET', this_worker, 'id', id, unpack(ARGV, fields_start))
redis.call('PEXPIRE', this_worker, ttl)
local function stored(hash)
  local count = redis.pcall('HLEN', hash)
  return type(count) == 'number' and count or 0
end
return {redis.call('HEXISTS', this_worker, 'stop'), stored(settings), last or '', stamp, stored(tasks), vacancy()}
