--[[
Ask a worker to stop, in order; it hears of it with its next sign of life.

KEYS  1 workers (zset)  2 this worker (hash)  3 log (stream)
ARGV  1 clock  2 log size  3 worker id
Returns  1 if it lives and has been asked, now or before; else 0
]]
local workers, me, log = KEYS[1], KEYS[2], KEYS[3]
local clock, log_size, id = ARGV[1], ARGV[2], ARGV[3]
--@include _clock
--@include _guard
local bad = misfit('zset', workers) or misfit('hash', me)
if bad then return bad end

if redis.call('EXISTS', me) == 0 then return 0 end
if redis.call('HEXISTS', me, 'stop') == 1 then return 1 end
open_memory(workers)
redis.call('HSET', me, 'stop', stamp)
if log_size ~= '0' then
  redis.pcall('XADD', log, 'MAXLEN', '~', log_size, '*', 'move', 'stop worker', 'id', id, 'attempts', 0, 'at_ms', stamp)
end
return 1
