-- Move what is due from `delayed` to `pending`, earliest first, at most `limit`; returns how many were due and how
-- many came to `pending`. Also the first step of every claim.
local function promote_due(limit)
  local ids = redis.call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, limit)
  if #ids == 0 then return 0, 0 end
  redis.call('ZREM', delayed, unpack(ids))
  local moved = {}
  for _, id in ipairs(ids) do
    local job, reason = read_job(id, 'status', 'payload')
    if not job then
      to_broken(id, reason)
    elseif FINISHED[job[1]] or (job[1] == 'processing' and is_processing(id)) then
      tally('strays_total', 1)
    else
      redis.call('HSET', jobs .. id, 'status', 'pending')
      moved[#moved + 1] = id
    end
  end
  if #moved > 0 then
    redis.call('LPUSH', pending, unpack(moved))
    tally('promoted_total', #moved)
  end
  return #ids, #moved
end

-- The earliest due instant, or ''.
local function next_due()
  return redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or ''
end
