--[[
Ask a worker to shut down gracefully; the reply to its next heartbeat tells it.

KEYS  workers (zset), this_worker (hash), log (stream)
ARGV  clock, log_size
      id: the worker's id
Returns  1 if it is alive and has been asked, now or before; else 0
]]
--@include clock
--@include checks
local bad = wrong_type('zset', workers) or wrong_type('hash', this_worker)
if bad then return bad end

if redis.call('EXISTS', this_worker) == 0 then return 0 end
if redis.call('HEXISTS', this_worker, 'stop') == 1 then return 1 end
allow_when_full(workers)
redis.call('HSET', this_worker, 'stop', stamp)
if log_size ~= '0' then
  redis.pcall('XADD', log, 'MAXLEN', '~', log_size, '*', 'move', 'stop worker', 'id', id, 'attempts', 0, 'at_ms', stamp)
end
return 1
