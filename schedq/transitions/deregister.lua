--[[
Remove a worker that shuts down gracefully, and its promoter lease or standby place, if it holds one.

KEYS  workers (zset), this_worker (hash), promoter (string), standbys (hash)
ARGV  due_channel
      id: the worker's id
      promoter_id: the id of its promoter
Returns  1
]]
--@include leave_standby
redis.pcall('ZREM', workers, id)
redis.call('DEL', this_worker)
if redis.pcall('GET', promoter) == promoter_id then
  redis.call('DEL', promoter)
  redis.pcall('PUBLISH', due_channel, 'vacant')  -- standbys listen if this promoter was resting
end
leave_place(promoter_id)
return 1
