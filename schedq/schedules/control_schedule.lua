--[[
Pause or resume a schedule, or record that a period of it is backfilled.

A paused schedule has no next slot. To resume it, the caller computes the next slot from now, from the definition that it
saw. That also enables a schedule again that was disabled because its definition was damaged.

KEYS  schedules (zset), schedule (hash), slots (list), log (stream)
ARGV  clock, log_size, due_channel
      request: a new id, by which a repeated request is recognized
      id: the schedule
      act: pause | resume | backfill
      seen: digest of the definition that the caller saw
      slot: the next slot, or '' for never
      kept (number): how many slots to keep the outcome of
      note: for the audit log
      first: the first slot that passed during the pause, or ''
      last: the last one
      many: how many passed
Returns  yes | no (it does not exist, or nothing changes) | AGAIN (the definition has changed)
]]
--@include clock
--@include checks
--@include numbers
--@include idempotent
--@include audit_schedule
--@include slot_log
local bad = wrong_type('zset', schedules) or wrong_type('hash', schedule)
if bad then return bad end

local stored = redis.call('HMGET', schedule, 'definition', 'request', 'paused_at_ms', 'error')
local score = redis.call('ZSCORE', schedules, id)
local before = earlier_reply(stored[2], request)
-- If an error ended the first sending half-way, a repetition completes it.
local is_done = act == 'backfill' or (act == 'pause' and score == 'inf') or (act == 'resume' and not (stored[3] or stored[4]))
if before and is_done then return before end
if not score or redis.call('EXISTS', schedule) == 0 then return 'no' end
if act == 'pause' and stored[3] and not before then return 'no' end
if act == 'resume' and not (stored[3] or stored[4] or before) then return 'no' end
if act ~= 'pause' and (stored[1] or '') ~= seen then return 'AGAIN' end

allow_when_full(schedules)
if act == 'pause' then
  if score ~= 'inf' then redis.call('HSET', schedule, 'parked_ms', score) end
  redis.call('HSET', schedule, 'paused_at_ms', now, 'request', request .. ' yes')
  redis.call('ZADD', schedules, '+inf', id)
elseif act == 'resume' then
  local head = redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', schedules, slot == '' and '+inf' or slot, id)
  if first ~= '' then
    write_slot_log(slots, {slot_line(first, last, many, 'skipped', '"why":"' .. (stored[3] and 'paused' or 'damaged') .. '"')}, kept, true)
  end
  redis.call('HSET', schedule, 'request', request .. ' yes')
  redis.call('HDEL', schedule, 'paused_at_ms', 'parked_ms', 'error')
  if slot ~= '' and (tonumber(head) or math.huge) > tonumber(slot) then redis.pcall('PUBLISH', due_channel, slot) end
end
if act == 'backfill' then redis.call('HSET', schedule, 'request', request .. ' yes') end
audit_schedule(act, id, note)
return 'yes'
