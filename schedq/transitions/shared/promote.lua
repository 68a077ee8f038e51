local head  -- of `delayed`, once it was read

-- The earliest due instant, or ''.
local function next_due()
  head = head or redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2] or ''
  return head
end

-- Move what is due from `delayed` to `pending`, earliest first, at most `limit`; returns how many were due and how
-- many came to `pending`. Also the first step of every claim.
local function promote_due(limit)
  local latest = now
  if (tonumber(next_due()) or math.huge) > latest then return 0, 0 end
  local ids = redis.call('ZRANGEBYSCORE', delayed, '-inf', latest, 'LIMIT', 0, limit)
  if #ids == 0 then return 0, 0 end
  local moved = {}
  -- An error in here must leave no job nowhere: they are added first, and removed last. One that is in both places
  -- meanwhile is due still, and its second entry in `pending` is a stray.
  allow_when_full(delayed)
  for _, id in ipairs(ids) do
    local job, reason = read_job(id, 'status', 'payload')
    if not job then
      to_broken(id, reason)
    elseif FINISHED[job[1]] or (job[1] == 'processing' and is_processing(id)) then
      add_to_total('strays_total', 1)
    else
      moved[#moved + 1] = id
    end
  end
  if #moved > 0 then
    redis.call('LPUSH', pending, unpack(moved))
    for _, id in ipairs(moved) do redis.call('HSET', jobs .. id, 'status', 'pending', 'promoted_at_ms', stamp) end
    add_to_total('promoted_total', #moved)
  end
  redis.call('ZREM', delayed, unpack(ids))
  head = nil
  return #ids, #moved
end
