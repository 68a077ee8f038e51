-- Completed records, those of other programs too, expire; remove the entries at the old end whose records are gone.
-- Returns how many entries were removed.
local function forget_expired(list)
  if redis.call('LLEN', list) == 0 then return 0 end
  if redis.call('EXISTS', jobs .. redis.call('LINDEX', list, -1)) == 1 then return 0 end
  local ids, gone = redis.call('LRANGE', list, -200, -1), 0
  for i = #ids, 1, -1 do
    if redis.call('EXISTS', jobs .. ids[i]) == 1 then break end
    gone = gone + 1
  end
  redis.call('LTRIM', list, 0, -gone - 1)
  return gone
end
