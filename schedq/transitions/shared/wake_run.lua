-- Needs totals and clock. A suspended run continues; one that is not suspended looks at its groups by itself. Returns whether it
-- was suspended.
local function wake_run(id)
  if not redis.call('ZSCORE', delayed, id) or redis.pcall('HEXISTS', jobs .. id, 'waits') ~= 1 then return false end
  redis.call('ZADD', delayed, stamp, id)  -- due at once, so that the promoter repairs what an error leaves behind
  redis.call('RPUSH', pending, id)
  redis.call('HSET', jobs .. id, 'status', 'pending', 'run_at_ms', stamp, 'promoted_at_ms', stamp)
  redis.call('ZREM', delayed, id)
  add_to_total('promoted_total', 1)
  return true
end
