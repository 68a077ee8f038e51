--[[
Write the limits of a gate: those that the code gives it, or those that an operator set, which take precedence.

A change has to reach keys that are full or rest under the old limits. The promoter looks at all lanes again, from the
mark that this script leaves; until it is done, such keys may wait longer than the new limits say, but never less.

KEYS  gates (hash), gate_turns (hash), resting (zset), log (stream), promoter (string), wake (zset), paused (string), asleep (hash)
ARGV  clock, log_size, due_channel
      gate: its name, or '' for the queue itself
      by: code | set | reset | remove
      limits: the definition as JSON; for `set`, only what changes, with 0 for no limit
Returns  1 if something changed, else 0; -1 if the limits would have no effect: `key_concurrency` of a gate that stays serial
]]
--@include clock
--@include checks
--@include numbers
--@include wake
--@include due
--@include log
local bad = wrong_type('hash', gates, gate_turns) or wrong_type('zset', resting)
if bad then return bad end

local FIELDS = {code = gate .. ' code', set = gate .. ' set'}
local function read(field)
  local text = redis.call('HGET', gates, field)
  local is_read, found = pcall(cjson.decode, text or '{}')
  return is_read and type(found) == 'table' and found or {}, text
end

local code, code_text = read(FIELDS.code)
local own, own_text = read(FIELDS.set)
if by == 'code' then
  if code_text == limits and redis.call('HEXISTS', gates, gate) == 1 then return 0 end
  code = cjson.decode(limits)
elseif by == 'set' then
  local changes = cjson.decode(limits)
  for name, value in pairs(changes) do own[name] = value end
  local is_serial = own.serial
  if is_serial == nil then is_serial = code.serial end
  if is_serial == true and (changes.key_concurrency or 0) > 1 then return -1 end
elseif by == 'reset' then
  if not own_text then return 0 end
  own = {}
elseif by == 'remove' then
  if redis.call('HDEL', gates, gate, FIELDS.code, FIELDS.set) == 0 then return 0 end
  code, own = {}, {}
end

local whole_text, merged = nil, {}
for name, value in pairs(code) do merged[name] = value end
for name, value in pairs(own) do merged[name] = value ~= 0 and value or nil end
whole_text = next(merged) and cjson.encode(merged) or '{}'
redis.call('HDEL', gates, '  ')  -- a removal comes first, so that a full Redis can change limits, too
if by == 'code' then redis.call('HSET', gates, FIELDS.code, limits) end
if by == 'set' then redis.call('HSET', gates, FIELDS.set, cjson.encode(own)) end
if by == 'reset' then redis.call('HDEL', gates, FIELDS.set) end
if by ~= 'remove' or gate ~= '' then redis.call('HSET', gates, gate, whole_text) end
redis.call('HSET', gate_turns, ' look', '1')
redis.call('ZADD', resting, stamp, gate)
announce_due(now)
set_wake()
if by ~= 'code' then write_log('gate', '', 0, by .. ' ' .. (gate == '' and 'the queue' or gate) .. ' ' .. limits) end
return 1
