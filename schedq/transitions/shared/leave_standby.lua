-- Give up the standby place of `me`, if it has one. Only removes, so it works when memory is full.
local function leave_place(me)
  local found = redis.pcall('HMGET', standbys, 'first', 'second')
  if found[1] == me then redis.call('HDEL', standbys, 'first', 'first_until_ms') end
  if found[2] == me then redis.call('HDEL', standbys, 'second', 'second_until_ms') end
end
