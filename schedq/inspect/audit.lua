--[[
Write one entry to the audit stream about an operator's action on many jobs; a repeated request writes it only once.

KEYS  log (stream)
ARGV  clock, log_size
      request: a new id, by which a repeated request is recognized
      act: what was done
      count: the number of jobs
      note: details
      who: the operator
Returns  1
]]
local LOOKED_BACK = 100
--@include clock
if log_size == '0' then return 1 end

local last = redis.pcall('XREVRANGE', log, '+', '-', 'COUNT', LOOKED_BACK)
for _, entry in ipairs(last.err and {} or last) do
  for n = 1, #entry[2], 2 do
    if entry[2][n] == 'request' and entry[2][n + 1] == request then return 1 end
  end
end
redis.pcall('XADD', log, 'MAXLEN', '~', log_size, '*', 'move', 'act ' .. act, 'id', '', 'attempts', 0, 'at_ms', stamp,
  'count', count, 'note', note, 'who', who, 'request', request)
return 1
