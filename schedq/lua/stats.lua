--[[
Depths and totals of one instant.

KEYS  1 pending (list)  2 processing (list)  3 completed (list)  4 failed (list)  5 cancelled (list)  6 broken (list)
      7 delayed (zset)  8 leases (zset)  9 stats (hash)  10 paused (string)  11 workers (zset)
ARGV  1 clock  2 ms of silence after which a worker does not count
Returns  {now, next due instant or '', paused since or '', live workers, the lengths of keys 1 to 8,
         total name, total, ...}
]]
local delayed, stats, paused, workers = KEYS[7], KEYS[9], KEYS[10], KEYS[11]
local clock, silence_ms = ARGV[1], tonumber(ARGV[2])
--@include _clock
--@include _guard
local bad = misfit('list', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]) or misfit('zset', KEYS[7], KEYS[8], workers)
  or misfit('hash', stats)
if bad then return bad end

local due = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or ''
local since = redis.call('EXISTS', paused) == 1 and redis.pcall('GET', paused) or ''
local reply = {now, due, type(since) == 'string' and since or '0', redis.call('ZCOUNT', workers, now - silence_ms, now + silence_ms)}
for i = 1, 6 do reply[4 + i] = redis.call('LLEN', KEYS[i]) end
reply[11], reply[12] = redis.call('ZCARD', KEYS[7]), redis.call('ZCARD', KEYS[8])
for _, value in ipairs(redis.call('HGETALL', stats)) do reply[#reply + 1] = value end
return reply
