--[[
One page of a place, each job with all its fields; at most 1 MiB, so a page may be shorter than asked.

KEYS  1 the place (list or zset)
ARGV  1 jobs prefix  2 'newest' (from the left of a list) | 'oldest' (from its right) | 'due' (of a zset)  3 offset
      4 limit
Returns  per job: {id, due instant or '', {field, value, ...}}; no fields if nothing is stored for an id, or no job
]]
local place = KEYS[1]
local jobs, order, offset, limit = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local MOST_BYTES, MOST_FIELDS = 1048576, 1000
--@include _guard
local bad = misfit(order == 'due' and 'zset' or 'list', place)
if bad then return bad end

local ids, dues = {}, {}
if order == 'due' then
  local page = redis.call('ZRANGE', place, offset, offset + limit - 1, 'WITHSCORES')
  for i = 1, #page, 2 do ids[#ids + 1], dues[#dues + 1] = page[i], page[i + 1] end
elseif order == 'newest' then
  ids = redis.call('LRANGE', place, offset, offset + limit - 1)
else
  local page = redis.call('LRANGE', place, -offset - limit, -offset - 1)
  for i = #page, 1, -1 do ids[#ids + 1] = page[i] end
end

local reply, bytes = {}, 0
for i, id in ipairs(ids) do
  local count, fields = redis.pcall('HLEN', jobs .. id), {}
  if type(count) == 'number' and count <= MOST_FIELDS then fields = redis.call('HGETALL', jobs .. id) end
  for n = 1, #fields do bytes = bytes + #fields[n] end
  if bytes > MOST_BYTES and i > 1 then break end
  reply[i] = {id, dues[i] or '', fields}
end
return reply
