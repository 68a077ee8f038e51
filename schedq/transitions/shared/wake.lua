-- Wake one idle worker; never while the queue is paused, `resume` does it then.
local function set_wake()
  if redis.call('EXISTS', paused, wake) == 0 then redis.pcall('ZADD', wake, 0, '1') end
end
