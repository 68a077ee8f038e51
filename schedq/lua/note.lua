--[[
Put one line about what an operator did to many jobs on record, once however often it is sent.

KEYS  1 log (stream)
ARGV  1 clock  2 log size  3 request  4 act  5 count of jobs it was done to  6 note  7 who did it
Returns  1
]]
local log = KEYS[1]
local clock, log_size, request, act, count, note, who = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local LOOKED_BACK = 100
--@include _clock
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
