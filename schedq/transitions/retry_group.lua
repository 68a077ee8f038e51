--[[
Run the children of a group that failed again, in a new generation; the group ends once more. The failures become items, a page at a
time; until the last page the group is not closed.

A failure whose item is not known stays one. What ends in the old generation changes nothing.

KEYS  groups (zset), promoter (string), wake (zset), paused (string), asleep (hash)
ARGV  clock, due_channel, group_keys
      name: of the group
      generation: a new one; the same in all pages
      left (number): how many failures to look at still, as the page before returned it; -1 in the first page
Returns  {OK | RUNNING (it has not ended) | NONE (nothing failed, or there is none) | OTHER (another retry has begun since),
         CUT (it was called off before all items were made),
         how many failures to look at still, how many became items}
]]
local PAGE = 500
--@include clock
--@include checks
--@include numbers
--@include wake
--@include due
local key = group_keys .. name
local items, counted, succeeded, failures = key .. ':items', key .. ':counted', key .. ':succeeded', key .. ':failed'
local bad = wrong_type('zset', groups) or wrong_type('hash', key) or wrong_type('list', items, failures)
if bad then return bad end

local found = redis.call('HMGET', key, 'status', 'generation', 'chained', 'total', 'closed', 'numbered')
local total, is_chain, is_same = whole(found[4]), found[3] == '1', found[2] == generation
if not found[1] or found[1] == 'deleted' then return {'NONE', 0, 0} end
if found[1] == 'running' or found[1] == 'cancelling' then
  if not is_same then return {left >= 0 and 'OTHER' or 'RUNNING', 0, 0} end
elseif redis.call('BITCOUNT', succeeded) >= total then
  return {'NONE', 0, 0}
elseif left >= 0 and not is_same then
  return {'OTHER', 0, 0}
elseif not is_chain and found[6] ~= '1' and redis.call('LLEN', items) > 0 then
  return {'CUT', 0, 0}
end
if found[1] ~= 'running' then
  left = is_chain and 0 or redis.call('LLEN', failures)
  redis.call('ZADD', groups, 0, name)  -- refused when memory is full, before anything is written
  redis.call('HDEL', key, 'becomes', 'error', 'ended_at_ms', 'cancel_from')
  if is_chain then
    redis.call('SETBIT', counted, redis.call('BITCOUNT', succeeded), 0)
    redis.call('HSET', key, 'status', 'running', 'generation', generation)
  else
    redis.call('HSET', key, 'status', 'running', 'generation', generation, 'numbered', '1', 'closed', '', 'bytes', '0', 'filled_at_ms',
      stamp)
  end
elseif left < 0 then
  left = redis.call('LLEN', failures)  -- the first page again: its reply was lost
end
if is_chain or found[5] == '1' and found[1] == 'running' then
  announce_due(now)
  return {'OK', 0, is_chain and 1 or 0}
end

redis.call('ZADD', groups, 0, name)
local seen, kept, again = {}, {}, {}
local page = left > 0 and redis.call('LRANGE', failures, -math.min(PAGE, left), -1) or {}
for n = #page, 1, -1 do
  local line = page[n]
  local number, length, rest = string.match(line, '^(%d+) (%d+) (.*)$')
  if number and not seen[number] and redis.call('GETBIT', succeeded, number) == 0 then
    seen[number] = true
    if length == '0' then kept[#kept + 1] = line else again[#again + 1] = number .. ' ' .. string.sub(rest, 1, whole(length)) end
  end
end
if #again > 0 then redis.call('LPUSH', items, unpack(again)) end
if #kept > 0 then redis.call('LPUSH', failures, unpack(kept)) end
if left > 0 then redis.call('LTRIM', failures, 0, -math.min(PAGE, left) - 1) end
left = math.max(0, left - PAGE)
redis.call('HSET', key, 'filled_at_ms', stamp)
if left == 0 then redis.call('HSET', key, 'closed', '1') end
announce_due(now)
return {'OK', left, #again}
