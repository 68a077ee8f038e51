-- Whether `processing` holds an id: by its lease, else by looking (a guide's worker has none).
local function is_processing(id)
  local lease = redis.call('ZSCORE', leases, id)
  return (lease and tonumber(lease) > 0) or redis.call('LPOS', processing, id)
end

-- Take one entry of an id out of `processing`, from the end where it is likelier: the list is in order of claims,
-- so a claim older than the middle one is nearer the right; and of few, the oldest are likely to end first.
local size, middle
local function take_claimed(id, started)
  size = size or redis.call('LLEN', processing)
  if size > 128 and not middle then
    middle = whole(redis.pcall('HGET', jobs .. redis.call('LINDEX', processing, math.floor(size / 2)), 'started_at_ms'))
  end
  return redis.call('LREM', processing, (size > 128 and started >= middle) and 1 or -1, id)
end
