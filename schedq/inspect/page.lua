--[[
One page of a list or zset, each job with all its fields; at most 1 MiB, so a page may be shorter than requested.

KEYS  source (list or zset), held (zset)
ARGV  jobs
      order: 'newest' (a list, from its left) | 'waiting' (held jobs, then a list from its right) | 'due' (a zset)
      offset (number), limit (number)
Returns  per job: {id, due instant or '', {field, value, ...}}; no fields if no job is stored under an id
]]
local MOST_BYTES, MOST_FIELDS = 1048576, 2000
--@include checks
local bad = wrong_type(order == 'due' and 'zset' or 'list', source) or wrong_type('zset', held)
if bad then return bad end

local ids, dues = {}, {}
if order == 'due' then
  local page = redis.call('ZRANGE', source, offset, offset + limit - 1, 'WITHSCORES')
  for i = 1, #page, 2 do ids[#ids + 1], dues[#dues + 1] = page[i], page[i + 1] end
elseif order == 'newest' then
  ids = redis.call('LRANGE', source, offset, offset + limit - 1)
else
  ids = redis.call('ZRANGE', held, offset, offset + limit - 1)
  local first = math.max(0, offset - redis.call('ZCARD', held))
  local page = #ids < limit and redis.call('LRANGE', source, -first - limit + #ids, -first - 1) or {}
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
