--[[
Pause a schedule, let it go on, or note that a time of it is filled in.

A paused one has no next slot; what it goes on with was reckoned from now by who asks, from the definition it saw. That
lifts what a damaged definition was parked for, too.

KEYS  1 schedules (zset)  2 this schedule (hash)  3 its slots (list)  4 log (stream)
ARGV  1 clock  2 log size  3 due channel  4 request  5 id  6 act: pause | resume | backfill  7 the definition that was
      seen  8 next slot, or '' for never  9 slots that are kept  10 note for the log  11 first slot that passed meanwhile,
      or ''  12 last one  13 how many
Returns  yes | no (it is not there, or is so already) | AGAIN (another definition is there)
]]
local schedules, schedule, slots, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local clock, log_size, due_channel, request, id = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local act, seen, slot, kept, note = ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9]), ARGV[10]
local first, last, many = ARGV[11], ARGV[12], ARGV[13]
--@include _clock
--@include _guard
--@include _job
--@include _once
--@include _act
--@include _account
local bad = misfit('zset', schedules) or misfit('hash', schedule)
if bad then return bad end

local stored = redis.call('HMGET', schedule, 'definition', 'request', 'paused_at_ms', 'error')
local score = redis.call('ZSCORE', schedules, id)
local before = answered(stored[2], request)
-- Half done, if an error came: then it is gone on with.
local is_done = act == 'backfill' or (act == 'pause' and score == 'inf') or (act == 'resume' and not (stored[3] or stored[4]))
if before and is_done then return before end
if not score or redis.call('EXISTS', schedule) == 0 then return 'no' end
if act == 'pause' and stored[3] and not before then return 'no' end
if act == 'resume' and not (stored[3] or stored[4] or before) then return 'no' end
if act ~= 'pause' and (stored[1] or '') ~= seen then return 'AGAIN' end

open_memory(schedules)
if act == 'pause' then
  if score ~= 'inf' then redis.call('HSET', schedule, 'parked_ms', score) end
  redis.call('HSET', schedule, 'paused_at_ms', now, 'request', request .. ' yes')
  redis.call('ZADD', schedules, '+inf', id)
elseif act == 'resume' then
  local head = redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', schedules, slot == '' and '+inf' or slot, id)
  if first ~= '' then
    write_account(slots, {account_line(first, last, many, 'skipped', '"why":"' .. (stored[3] and 'paused' or 'damaged') .. '"')}, kept, true)
  end
  redis.call('HSET', schedule, 'request', request .. ' yes')
  redis.call('HDEL', schedule, 'paused_at_ms', 'parked_ms', 'error')
  if slot ~= '' and (tonumber(head) or math.huge) > tonumber(slot) then redis.pcall('PUBLISH', due_channel, slot) end
end
if act == 'backfill' then redis.call('HSET', schedule, 'request', request .. ' yes') end
note_act(act, id, note)
return 'yes'
