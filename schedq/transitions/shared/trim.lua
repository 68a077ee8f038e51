local MOST_FINISHED = 100000

-- Needs totals. Delete the oldest jobs of a history beyond `keep`, at most `budget` of them, except those that finished less than
-- `min_keep_ms` ago. A finish far in the future is from before the clock went back, and does not protect a job.
-- keep = -1: the caller does not know the application's caps, so nothing is deleted.
-- Deleted records of failed jobs are counted, unless `keep` is 0, which asks for none.
-- Returns how many entries were removed, and how many records.
local function trim(list, status, stamp, keep, min_keep_ms, budget, length)
  if keep < 0 then return 0, 0 end
  length = length or redis.call('LLEN', list)
  local excess, gone, deleted, spared = length - keep, 0, 0, false
  while excess > gone and budget > gone and not spared do
    -- Only the oldest at first, because it is often too recent, and then nothing more need be read.
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
  if status == 'failed' and keep > 0 and deleted > 0 then
    add_to_total('failed_dropped_total', deleted)
    redis.pcall('HSET', stats, 'failed_dropped_at_ms', now)
  end
  return gone, deleted
end
