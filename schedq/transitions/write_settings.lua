--[[
Store the application's settings, and the options of its tasks, for processes without the application's code.

A task that never had options has no entry. A task that no longer has any keeps an empty entry, because workers of the
previous release, which store theirs again when some are missing, would restore the old ones. Tasks that the caller does
not name belong to another application and keep theirs.

KEYS  settings (hash), tasks (hash)
ARGV  count (number): how many of the words are settings
      words...: the settings: field, value, ...; then per task: name, options or ''
Returns  1
]]
--@include checks
local bad = wrong_type('hash', settings)
if bad then return bad end

redis.call('HDEL', settings, '')
redis.call('HSET', settings, unpack(ARGV, words_start, words_start + count - 1))
-- A key of the wrong type must not prevent the settings from being stored; `schedq doctor` reports it.
for n = words_start + count, #ARGV, 2 do
  if ARGV[n + 1] ~= '' or redis.pcall('HEXISTS', tasks, ARGV[n]) == 1 then
    redis.pcall('HSET', tasks, ARGV[n], ARGV[n + 1] == '' and '{}' or ARGV[n + 1])
  end
end
return 1
