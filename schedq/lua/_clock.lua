-- The one reading of the time: Redis's own, unless the caller was given a clock. Sets `now`.
local function read_clock(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
local now = read_clock(clock)
