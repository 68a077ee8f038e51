-- The one reading of the time: Redis's own, unless the caller was given a clock. Sets `stamp`, ms as text (Redis is slow
-- to write numbers of Lua's), and `now`, the same as a number.
local function read_clock(given)
  if given ~= '' then return given end
  local time = redis.call('TIME')
  return time[1] .. string.format('%03d', math.floor(time[2] / 1000))
end
local stamp = read_clock(clock)
local now = tonumber(stamp)
