local MOST_SEARCHED = 10000

local function take_out(id, status, was_marked)
  if redis.call('ZREM', delayed, id) == 1 then return true end
  if is_processing(id) then return false end
  if redis.call('LLEN', pending) > MOST_SEARCHED then return status ~= 'delayed' and status ~= 'processing' end
  return redis.call('LREM', pending, 0, id) > 0 or was_marked
end

-- Cancel a job that waits, or ask a running one to stop: cancelled, asked or no. `job` is its status, payload, request,
-- attempts and waiter.
local function cancel_job(id, job, request)
  local key = jobs .. id
  -- An error ended this very move before: the job may be nowhere.
  local was_marked = tonumber(redis.call('ZSCORE', leases, id) or 1) == 0
  local runs = is_processing(id)
  if not runs then mark(id) end
  if take_out(id, job[1], was_marked) then
    redis.call('HSET', key, 'status', 'cancelled', 'cancelled_at_ms', now, 'request', request .. ' cancelled')
    redis.call('HDEL', key, 'claim_token', 'waiter')
    redis.call('PERSIST', key)
    redis.call('LPUSH', cancelled, id)
    unmark(id)
    tally('cancelled_total', 1)
    tell(id, 'cancelled', whole(job[4]), job[5])
    to_log('cancelled', id, whole(job[4]))
    trim(cancelled, 'cancelled', 'cancelled_at_ms', failed_history, min_keep, 20)
    return 'cancelled'
  end
  if not runs then unmark(id) end
  if job[1] == 'processing' or runs then
    redis.call('HSET', key, 'stop', now, 'request', request .. ' asked')
    to_log('stop', id, whole(job[4]))
    return 'asked'
  end
  return 'no'
end
