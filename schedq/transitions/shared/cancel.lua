local MOST_SEARCHED = 10000

-- Whether a job is running. `processing` is searched only if the lease, the status, `delayed` and the number of leases
-- do not decide it.
local function is_running(id, status, lease)
  if lease > 0 then return true end
  local waits = status ~= 'processing' and (redis.call('ZSCORE', delayed, id)
    or (lease < 0 and redis.call('LLEN', processing) <= redis.call('ZCARD', leases)))
  return not waits and redis.call('LPOS', processing, id)
end

-- Take a waiting job out; returns whether it was waiting, whether its entry stays because `pending` is too long to search,
-- and whether another job of its key may start now.
local function take_out(id, status, runs, was_marked)
  if redis.call('ZREM', delayed, id) == 1 then return true end
  if runs then return false end
  if redis.pcall('ZREM', held, id) == 1 then
    -- Claims and the promoter look at the key again.
    local found = redis.pcall('HMGET', jobs .. id, 'gate', 'key')
    if not found.err and found[1] then redis.pcall('ZADD', resting, stamp, found[1] .. ' ' .. (found[2] or '')) end
    return true, false, true
  end
  if redis.call('LLEN', pending) > MOST_SEARCHED then
    local waits = status ~= 'delayed' and status ~= 'processing' and not redis.call('LPOS', processing, id)
    return waits, waits
  end
  redis.call('HDEL', jobs .. id, 'entry_left')  -- from earlier, when `pending` was longer
  return redis.call('LREM', pending, 0, id) > 0 or was_marked
end

-- A suspended run may wait for groups, which are called off with it: the promoter looks at them next.
local function look_at_groups_of(waits)
  local is_read, found = pcall(cjson.decode, waits)
  for _, wait in ipairs(is_read and type(found) == 'table' and found or {}) do
    local group = type(wait) == 'table' and wait[5]
    if type(group) == 'string' and group ~= '' then redis.pcall('ZADD', groups, 'XX', 0, group) end
  end
end

-- Let a waiting run undo what it has done, after which it is cancelled.
local function undo_first(id, job, request, was_marked)
  if undoing_of(job[9]) then return 'asked' end
  mark_in_transit(id)
  local is_due = redis.call('ZREM', delayed, id) == 1 or was_marked
  redis.call('HSET', jobs .. id, 'status', 'pending', 'run_at_ms', stamp, 'attempts', 0, 'run', to_undo(job[9], true), 'undoing', '',
    'request', request .. ' asked')
  redis.call('HDEL', jobs .. id, 'crashes', 'released')
  if is_due then redis.call('RPUSH', pending, id) end
  unmark_in_transit(id)
  if job[8] then look_at_groups_of(job[8]) end
  if is_due or job[8] then set_wake() end
  publish_event(id, 'undoing', whole(job[4]))
  write_log('undo', id, whole(job[4]))
  return 'asked'
end

-- Needs group_end, undo and wake. Cancel a waiting job, or ask a running one to stop; returns cancelled, asked or no. `job` is its
-- status, payload, request, attempts, waiter, failed_ttl_ms, group, waits and run.
local function cancel_job(id, job, request)
  local key = jobs .. id
  -- A lease of 0 means that an error ended this move before, so the job may have no entry.
  local lease = tonumber(redis.call('ZSCORE', leases, id) or -1)
  local runs = is_running(id, job[1], lease)
  if undoing_of(job[9]) or (open_undos(job[9]) > 0 and not runs) then return undo_first(id, job, request, lease == 0) end
  if not runs then mark_in_transit(id) end
  local is_out, entry_left, frees_key = take_out(id, job[1], runs, lease == 0)
  if is_out then
    if job[7] then tell_group(job[7], id, false, 'cancelled') end
    redis.call('HSET', key, 'status', 'cancelled', 'cancelled_at_ms', now, 'request', request .. ' cancelled')
    if entry_left then
      local before = whole(redis.call('HMGET', key, 'entry_left')[1])  -- more than 0: it was cancelled and requeued before
      redis.call('HSET', key, 'entry_left', digits(before + 1))
    end
    redis.call('HDEL', key, 'claim_token', 'waiter')
    redis.call('PERSIST', key)
    -- The claim that reaches the entry must find the record.
    if not entry_left then expire_record(key, kept_for(job[6], '', failed_ttl_ms)) end
    redis.call('LPUSH', cancelled, id)
    unmark_in_transit(id)
    if job[8] then look_at_groups_of(job[8]) end
    if frees_key or job[7] or job[8] then set_wake() end
    add_to_total('cancelled_total', 1)
    publish_event(id, 'cancelled', whole(job[4]), job[5])
    write_log('cancelled', id, whole(job[4]))
    trim(cancelled, 'cancelled', 'cancelled_at_ms', failed_history, min_keep_ms, 20)
    return 'cancelled'
  end
  if not runs then unmark_in_transit(id) end
  if job[1] == 'processing' or runs or redis.call('LPOS', processing, id) then
    redis.call('HSET', key, 'stop', now, 'request', request .. ' asked')
    write_log('stop', id, whole(job[4]))
    return 'asked'
  end
  return 'no'
end
