--[[
Record a heartbeat of a worker and what it runs; return whether it was asked to stop.

KEYS  workers (zset), this_worker (hash), settings (hash), tasks (hash), promoter (string), standbys (hash)
ARGV  clock
      id: of the worker
      ttl (number): ms until the worker counts as gone
      fields...: its record: field, value, ...
Returns  {1 if it was asked to stop, else 0, how many of the queue's settings are stored, its last heartbeat that is
         stored here, ms, or '', now, ms, how many tasks have stored options, what a process that promotes
         takes next: 1 the promoter lease, 2 the first standby's place, 3 the second's, 0 nothing}
]]
--@include clock
--@include checks
--@include standby
local bad = wrong_type('zset', workers) or wrong_type('hash', this_worker)
if bad then return bad end

-- The best part that is to be taken by one that has none: 1 the lease itself, 2 or 3 a place, 0 none. The place of the
-- first is the second's, if there is one.
local function vacancy()
  if redis.call('EXISTS', promoter) == 0 then return 1 end
  local first, second = read_standbys()
  if first then return second and 0 or 3 end
  return second and 0 or 2
end

local last = redis.call('ZSCORE', workers, id)
-- A removal comes first: it is allowed when memory is full, and opens the way for the rest.
redis.call('ZREMRANGEBYSCORE', workers, '-inf', now - 10 * ttl)
redis.call('ZREMRANGEBYSCORE', workers, now + 10 * ttl, '+inf')  -- from before the clock went back
redis.call('ZADD', workers, now, id)
redis.call('HSET', this_worker, 'id', id, unpack(ARGV, fields_start))
redis.call('PEXPIRE', this_worker, ttl)
local function written(hash)
  local count = redis.pcall('HLEN', hash)
  return type(count) == 'number' and count or 0
end
return {redis.call('HEXISTS', this_worker, 'stop'), written(settings), last or '', stamp, written(tasks), vacancy()}
