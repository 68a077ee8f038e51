-- Remove one entry of an id from `processing`, searching from the likelier end. The list is in order of claims, so a claim
-- older than the middle one is in the right half; and in a short list, the oldest claims are likely to end first.
local size, middle
local function take_claimed(id, started)
  size = size or redis.call('LLEN', processing)
  if size > 128 and not middle then
    middle = whole(redis.pcall('HGET', jobs .. redis.call('LINDEX', processing, math.floor(size / 2)), 'started_at_ms'))
  end
  return redis.call('LREM', processing, (size > 128 and whole(started) >= middle) and '1' or '-1', id)
end
