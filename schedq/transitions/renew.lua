--[[
Renew the leases of jobs that the caller still holds.

`claimed_at_ms` is updated too, because a reclaimer written after the Redis guide relies on it; `started_at_ms` stays.

KEYS  leases (zset)
ARGV  jobs, clock, visibility_ms (number)
      held...: per job: id, token
Returns  per job: OK | STOP (renewed, but asked to stop) | LOST (nothing is written)
]]
--@include clock
--@include checks
local bad = wrong_type('zset', leases)
if bad then return bad end

local words, ends = {}, {}
allow_when_full(leases)
for i = held_start, #ARGV, 2 do
  local id, token = ARGV[i], ARGV[i + 1]
  local job = redis.pcall('HMGET', jobs .. id, 'status', 'claim_token', 'stop')
  if not job.err and token ~= '' and job[1] == 'processing' and job[2] == token then
    redis.call('HSET', jobs .. id, 'claimed_at_ms', now)
    ends[#ends + 1], ends[#ends + 2] = now + visibility_ms, id
    words[#words + 1] = job[3] and 'STOP' or 'OK'
  else
    words[#words + 1] = 'LOST'
  end
end
if #ends > 0 then redis.call('ZADD', leases, unpack(ends)) end
return words
