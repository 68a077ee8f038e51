--[[
Current depths and totals.

KEYS  pending (list), processing (list), completed (list), failed (list), cancelled (list), broken (list),
      delayed (zset), leases (zset), held (zset), stats (hash), paused (string), workers (zset),
      paused_tasks (hash), groups (zset)
ARGV  clock, silence_ms (number)
Returns  {now, next due instant or '', paused since or '', live workers, the lengths of the keys
         from `pending` to `held`, how many tasks are paused, how many batches are stored, how many runs wait for no instant,
         total name, total, ...}
]]
local LAST_INSTANT = '253402300799999'
--@include clock
--@include checks
local lists = {pending, processing, completed, failed, cancelled, broken}
local bad = wrong_type('list', unpack(lists)) or wrong_type('zset', delayed, leases, held, workers, groups)
  or wrong_type('hash', stats, paused_tasks)
if bad then return bad end

local due = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or ''
local since = redis.call('EXISTS', paused) == 1 and redis.pcall('GET', paused) or ''
local reply = {now, due, type(since) == 'string' and since or '0', redis.call('ZCOUNT', workers, now - silence_ms, now + silence_ms)}
for i, list in ipairs(lists) do reply[4 + i] = redis.call('LLEN', list) end
reply[11], reply[12], reply[13] = redis.call('ZCARD', delayed), redis.call('ZCARD', leases), redis.call('ZCARD', held)
reply[14] = redis.call('HLEN', paused_tasks)
reply[15], reply[16] = redis.call('ZCARD', groups), redis.call('ZCOUNT', delayed, LAST_INSTANT, LAST_INSTANT)
for _, value in ipairs(redis.call('HGETALL', stats)) do reply[#reply + 1] = value end
return reply
