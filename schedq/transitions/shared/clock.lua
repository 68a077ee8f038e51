-- Read the time once: Redis's own, unless the caller has a clock. Sets `stamp`, ms as text (Redis is slow to convert
-- Lua numbers), and `now`, the same as a number; also `redis_time`, what TIME returned.
local redis_time
local function read_clock(given)
  if given ~= '' then return given end
  redis_time = redis.call('TIME')
  return redis_time[1] .. string.format('%03d', math.floor(redis_time[2] / 1000))
end
local stamp = read_clock(clock)
local now = tonumber(stamp)
