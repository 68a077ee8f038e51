--[[
Move claims older than the visibility timeout back to `pending`.

If a worker died before it wrote `claimed_at_ms`, the age of the job counts instead, with twice the timeout. The end of
an earlier attempt counts as well: until a worker has written its claim, the hash still has the previous one.

KEYS  1 processing (list)  2 pending (list)
ARGV  1 prefix of the jobs' keys  2 now, ms  3 visibility timeout, ms
Returns  the ids that were moved back
]]
local now, visibility = tonumber(ARGV[2]), tonumber(ARGV[3])
local taken_back = {}
for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local times = redis.call('HMGET', ARGV[1] .. id, 'claimed_at_ms', 'reclaimed_at_ms', 'last_error_at_ms', 'enqueued_at_ms')
  local claimed, enqueued = tonumber(times[1] or ''), tonumber(times[4] or '')
  local is_stuck
  if claimed then
    local since = math.max(claimed, tonumber(times[2] or '') or 0, tonumber(times[3] or '') or 0)
    is_stuck = now - since > visibility
  else
    is_stuck = enqueued and now - enqueued > 2 * visibility
  end
  if is_stuck then
    redis.call('LREM', KEYS[1], 1, id)
    redis.call('HSET', ARGV[1] .. id, 'status', 'pending', 'claim_token', '', 'reclaimed_at_ms', now)
    redis.call('LPUSH', KEYS[2], id)
    taken_back[#taken_back + 1] = id
  end
end
return taken_back
