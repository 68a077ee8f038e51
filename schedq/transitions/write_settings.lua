--[[
Write down the application's settings, and the options of its tasks, for processes that lack them.

A task that never had options has no entry. One that has none any more keeps an empty one: workers of the release
before, which write theirs again when some are missing, would bring them back. Tasks that the caller does not name are
another application's, and keep theirs.

KEYS  settings (hash), tasks (hash)
ARGV  count (number): of the words that are settings
      words...: the settings: field, value, ...; then per task: name, options or ''
Returns  1
]]
--@include checks
local bad = wrong_type('hash', settings)
if bad then return bad end

redis.call('HDEL', settings, '')
redis.call('HSET', settings, unpack(ARGV, words_start, words_start + count - 1))
-- A key of another type must not keep the settings from being written; the doctor finds it.
for n = words_start + count, #ARGV, 2 do
  if ARGV[n + 1] ~= '' or redis.pcall('HEXISTS', tasks, ARGV[n]) == 1 then
    redis.pcall('HSET', tasks, ARGV[n], ARGV[n + 1] == '' and '{}' or ARGV[n + 1])
  end
end
return 1
