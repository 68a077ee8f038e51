--[[
Write down the application's settings, and the options of its tasks, for processes that lack them.

A task that never had options has no entry. One that has none any more keeps an empty one: workers of the release
before, which write theirs again when some are missing, would bring them back. Tasks that the caller does not name are
another application's, and keep theirs.

KEYS  1 settings (hash)  2 tasks (hash)
ARGV  1 count of values of settings  2... field, value, ..., and then per task: name, options or ''
Returns  1
]]
local settings, tasks = KEYS[1], KEYS[2]
local count = tonumber(ARGV[1])
--@include _guard
local bad = misfit('hash', settings)
if bad then return bad end

local i = 2
redis.call('HDEL', settings, '')
redis.call('HSET', settings, unpack(ARGV, i, count + 1))
-- A key of another type must not keep the settings from being written; the doctor finds it.
for n = i + count, #ARGV, 2 do
  if ARGV[n + 1] ~= '' or redis.pcall('HEXISTS', tasks, ARGV[n]) == 1 then
    redis.pcall('HSET', tasks, ARGV[n], ARGV[n + 1] == '' and '{}' or ARGV[n + 1])
  end
end
return 1
