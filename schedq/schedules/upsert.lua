--[[
Store a schedule's definition, new or changed, and its next slot, or leave the slot as it is.

The caller has read the schedule first; if the definition has changed since, it must read again. A pause and the number
of runs stay. The digests of the last 20 replaced definitions are kept, so that a worker of an older release recognizes
that its definition was replaced. The first write is one that Redis refuses when memory is full.

KEYS  schedules (zset), schedule (hash), log (stream)
ARGV  clock, log_size, due_channel
      request: a new id, by which a repeated request is recognized
      id: the schedule
      seen: digest of the definition that the caller saw, or ''
      slot: the next slot, '' for never, or 'keep'
      count (number): how many fields a definition may have
      words...: the names of these fields; then the definition: field, value, ...
Returns  created | changed | AGAIN (the definition has changed)
]]
local MOST_REPLACED, DIGEST, LONGEST = 20, 16, 1000
--@include clock
--@include checks
--@include idempotent
--@include audit_schedule
local bad = wrong_type('zset', schedules) or wrong_type('hash', schedule)
if bad then return bad end

local stored = redis.call('HMGET', schedule, 'definition', 'request', 'paused_at_ms', 'replaced')
local before = earlier_reply(stored[2], request)
if before then return before end
if (stored[1] or '') ~= seen then return 'AGAIN' end
local word = redis.call('EXISTS', schedule) == 1 and 'changed' or 'created'
local head = tonumber(redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')[2] or '+inf') or math.huge

local score = slot
if slot == '' or stored[3] then score = '+inf' end
if slot == 'keep' then score = redis.call('ZSCORE', schedules, id) or '+inf' end
redis.call('ZADD', schedules, score, id)
local given, stale, fields = {}, {}, {'id', id, 'changed_at_ms', now, 'request', request .. ' ' .. word}
for i = words_start + count, #ARGV, 2 do
  given[ARGV[i]] = ARGV[i + 1]
  fields[#fields + 1], fields[#fields + 2] = ARGV[i], ARGV[i + 1]
end
for i = words_start, words_start + count - 1 do
  if not given[ARGV[i]] then stale[#stale + 1] = ARGV[i] end
end
local replaced, made = {}, given.definition
for digest in string.gmatch(string.sub(stored[4] or '', 1, LONGEST), '%S+') do
  if digest ~= made and digest ~= seen then replaced[#replaced + 1] = digest end
end
if seen ~= '' and seen ~= made and #seen <= DIGEST then replaced[#replaced + 1] = seen end
while #replaced > MOST_REPLACED do table.remove(replaced, 1) end
fields[#fields + 1], fields[#fields + 2] = 'replaced', table.concat(replaced, ' ')
-- One write, so that no error leaves a mixture of two definitions: unused fields are emptied first, and then removed.
for _, name in ipairs(stale) do
  fields[#fields + 1], fields[#fields + 2] = name, ''
end
if word == 'created' then
  fields[#fields + 1], fields[#fields + 2] = 'created_at_ms', now
end
redis.call('HSET', schedule, unpack(fields))
redis.call('HDEL', schedule, 'error', 'parked_ms', unpack(stale))
audit_schedule(word == 'created' and 'create' or 'change', id, '')
if (tonumber(score) or math.huge) < head then redis.pcall('PUBLISH', due_channel, score) end
return word
