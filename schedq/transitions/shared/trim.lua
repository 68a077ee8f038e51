local MOST_FINISHED = 100000

-- Forget the oldest of a history beyond `keep`, sparing what finished less than `min_keep_ms` ago, at most `budget`
-- of them. What finished far ahead of now did so before the clock went back, and spares nobody until then.
-- keep = -1: the caller does not know the application's caps, so it forgets nothing.
-- Returns how many entries went, and how many records with them.
local function trim(list, status, stamp, keep, min_keep_ms, budget, length)
  if keep < 0 then return 0, 0 end
  length = length or redis.call('LLEN', list)
  local excess, gone, deleted, spared = length - keep, 0, 0, false
  while excess > gone and budget > gone and not spared do
    -- The oldest alone at first: where there is much to spare, it is often spared.
    local page = math.min(excess - gone, budget - gone, gone == 0 and 1 or 100)
    local ids = redis.call('LRANGE', list, -gone - page, -gone - 1)
    for i = #ids, 1, -1 do
      local job = redis.pcall('HMGET', jobs .. ids[i], 'status', stamp, 'entry_left')
      if not job.err and job[1] == status then
        if length - gone <= MOST_FINISHED and math.abs(now - whole(job[2])) < min_keep_ms then spared = true break end
        delete_record(jobs .. ids[i], job[3])
        deleted = deleted + 1
      end
      gone = gone + 1
    end
    if #ids == 0 then break end
  end
  if gone > 0 then redis.call('LTRIM', list, 0, -gone - 1) end
  return gone, deleted
end

-- Completed records expire by themselves, those of other programs too; their entries at the old end go after them.
-- Returns how many entries went.
local function forget_expired(list, keep)
  if keep < 0 or redis.call('LLEN', list) == 0 then return 0 end
  if redis.call('EXISTS', jobs .. redis.call('LINDEX', list, -1)) == 1 then return 0 end
  local ids, gone = redis.call('LRANGE', list, -200, -1), 0
  for i = #ids, 1, -1 do
    if redis.call('EXISTS', jobs .. ids[i]) == 1 then break end
    gone = gone + 1
  end
  redis.call('LTRIM', list, 0, -gone - 1)
  return gone
end
