--[[
Pause a gate or a key of a gate, hold it for a while, or resume it. Running jobs continue. Since when it is paused is
noted for people.

KEYS  gates (hash), gate_holds (zset), resting (zset), log (stream), promoter (string), wake (zset), paused (string), asleep (hash),
      gate_turns (hash)
ARGV  clock, log_size, due_channel
      name: "GATE", or "GATE KEY"
      action: pause | hold | resume
      ms (number): how long to hold it; a hold never shortens a longer one
Returns  1 if something changed, else 0
]]
--@include clock
--@include checks
--@include numbers
--@include wake
--@include due
--@include log
local bad = wrong_type('hash', gates) or wrong_type('zset', resting, gate_holds)
if bad then return bad end

redis.call('ZREM', gate_holds, '')  -- a removal comes first, so that a full Redis can pause, too
local changed
if action == 'resume' then
  changed = redis.call('ZREM', gate_holds, name)
  redis.pcall('HDEL', gate_turns, ' paused ' .. name)
else
  local gate = string.match(name, '^%S+')
  redis.call('HSETNX', gates, gate, '{}')
  changed = redis.call('ZADD', gate_holds, 'GT', 'CH', action == 'pause' and '+inf' or digits(now + ms), name)
  if action == 'pause' then redis.pcall('HSETNX', gate_turns, ' paused ' .. name, stamp) end
end
-- Claims and the promoter look again at what has rested until now.
redis.call('ZADD', resting, stamp, name)
announce_due(now)
if action == 'resume' then set_wake() end
if changed == 1 then write_log('gate', '', 0, action .. ' ' .. name) end
return changed
