--[[
Return the status of schedules: those that are due, earliest slot first, or a page of all, or those with given ids.

KEYS  schedules (zset)
ARGV  definitions, clock
      mode: 'due' | 'all' | 'these'
      offset (number), limit (number)
      after: for 'due': only slots later than this, ms, or ''
      ids...: for 'these'
Returns  {now, the first slot that is not due yet or '', per schedule: id, slot or '', definition, timing, version, owner,
         paused since or '', error, digests of replaced definitions}; '' for missing values
]]
--@include clock
--@include checks
--@include numbers
local bad = wrong_type('zset', schedules)
if bad then return bad end

local function look(reply, id, slot)
  local stored = redis.pcall('HMGET', definitions .. id, 'definition', 'timing', 'version', 'owner', 'paused_at_ms', 'error',
    'replaced')
  if stored.err then stored = {} end
  local row = {id, slot or ''}
  for n = 1, 7 do row[2 + n] = stored[n] or '' end
  for _, word in ipairs(row) do reply[#reply + 1] = word end
end

local upcoming = redis.call('ZRANGEBYSCORE', schedules, '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
local reply = {now, (upcoming and upcoming ~= 'inf') and upcoming or ''}
if mode == 'these' then
  for i = ids_start, #ARGV do look(reply, ARGV[i], redis.call('ZSCORE', schedules, ARGV[i])) end
  return reply
end
local page
if mode == 'due' then
  page = redis.call('ZRANGEBYSCORE', schedules, after == '' and '-inf' or '(' .. after, now, 'WITHSCORES', 'LIMIT', offset, limit)
else
  page = redis.call('ZRANGE', schedules, offset, offset + limit - 1, 'WITHSCORES')
end
for n = 1, #page, 2 do look(reply, page[n], page[n + 1]) end
return reply
