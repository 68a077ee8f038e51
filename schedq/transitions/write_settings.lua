--[[
Store the application's settings, and the options of its tasks, for processes without the application's code.

A setting with its default is not stored, as most queues have most of these. A task that never had options has no entry. A task that no longer has any keeps an empty entry, because workers of the
previous release, which store theirs again when some are missing, would restore the old ones. Tasks that the caller does
not name belong to another application and keep theirs.

KEYS  settings (hash), tasks (hash)
ARGV  count (number): how many of the words are settings
      words...: the settings: field, value or '' if it is not to be stored, ...; then per task: name, options or ''
Returns  1
]]
--@include checks
local bad = wrong_type('hash', settings)
if bad then return bad end

local fields, is_ours = {}, {}
for n = words_start, words_start + count - 1, 2 do
  is_ours[ARGV[n]] = true
  if ARGV[n + 1] ~= '' then fields[#fields + 1], fields[#fields + 2] = ARGV[n], ARGV[n + 1] end
end
-- The whole hash is written again, because Redis stores a hash that once had a long value in a larger form.
local there = redis.call('HGETALL', settings)
for n = 1, #there, 2 do
  if not is_ours[there[n]] then fields[#fields + 1], fields[#fields + 2] = there[n], there[n + 1] end
end
redis.call('DEL', settings)
redis.call('HSET', settings, unpack(fields))
-- A key of the wrong type must not prevent the settings from being stored; `schedq doctor` reports it.
for n = words_start + count, #ARGV, 2 do
  if ARGV[n + 1] ~= '' or redis.pcall('HEXISTS', tasks, ARGV[n]) == 1 then
    redis.pcall('HSET', tasks, ARGV[n], ARGV[n + 1] == '' and '{}' or ARGV[n + 1])
  end
end
return 1
