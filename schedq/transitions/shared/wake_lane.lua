local WAKE_KEPT = 60000  -- ms; the promoter sets the markers again while there are jobs

-- Wake the idle workers that may take the jobs of a lane: one that runs every task, and one that is limited to some tasks
-- and this is one of them. Returns whether one of the markers was missing.
local function wake_lane(task)
  local is_new = false
  if redis.call('EXISTS', paused) == 1 then return is_new end
  for _, key in ipairs({wake_held, wakes .. (task or '')}) do
    if redis.call('EXISTS', key) == 0 then
      redis.pcall('ZADD', key, 0, '1')
      redis.pcall('PEXPIRE', key, WAKE_KEPT)
      is_new = true
    end
  end
  return is_new
end
