--[[
Let leases begin anew for those who still hold them.

`claimed_at_ms` moves along, because a reclaimer written after the guide goes by it; `started_at_ms` keeps the start.

KEYS  1 leases (zset)
ARGV  1 jobs prefix  2 clock  3 visibility, ms  4... per job: id, token
Returns  per job: OK | STOP (held, and asked to stop) | LOST (nothing is written)
]]
local leases = KEYS[1]
local jobs, clock, visibility = ARGV[1], ARGV[2], tonumber(ARGV[3])
--@include _clock
--@include _guard
local bad = misfit('zset', leases)
if bad then return bad end

local answers, ends = {}, {}
open_memory(leases)
for i = 4, #ARGV, 2 do
  local id, token = ARGV[i], ARGV[i + 1]
  local job = redis.pcall('HMGET', jobs .. id, 'status', 'claim_token', 'stop')
  if not job.err and token ~= '' and job[1] == 'processing' and job[2] == token then
    redis.call('HSET', jobs .. id, 'claimed_at_ms', now)
    ends[#ends + 1], ends[#ends + 2] = now + visibility, id
    answers[#answers + 1] = job[3] and 'STOP' or 'OK'
  else
    answers[#answers + 1] = 'LOST'
  end
end
if #ends > 0 then redis.call('ZADD', leases, unpack(ends)) end
return answers
