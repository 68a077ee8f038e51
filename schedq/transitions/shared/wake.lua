-- Wake one idle worker; never while the queue is paused, `resume` does it then. A promoter that rests is called, because
-- only a promoter notices that the worker which took the marker died.
local function set_wake()
  if redis.call('EXISTS', paused, wake) > 0 then return end
  redis.pcall('ZADD', wake, 0, '1')
  local channel = redis.pcall('HGET', asleep, 'channel')
  if type(channel) == 'string' then
    redis.pcall('HDEL', asleep, 'channel')
    redis.pcall('PUBLISH', channel, 'awake')
  end
end
