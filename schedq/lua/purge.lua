--[[
Delete jobs that were enqueued before an instant, one page of one place.

What runs is deleted too; its worker is answered LOST then. Pages begin at the old end, where new jobs never come.

KEYS  1 the place (list or zset)  2 leases (zset)  3 stats (hash)
ARGV  1 jobs prefix  2 clock  3 instant, ms, or '' for now  4 how many entries of the old end to pass over
      5 page length  6 'list' | 'zset' | 'pending' (a list in which entries of cancelled jobs may be left) | 'notes'
      (of `broken`, whose entries are no ids)
Returns  {the instant, how many entries to pass over next, deleted, whether there are more (1 or 0)}
]]
local place, leases, stats = KEYS[1], KEYS[2], KEYS[3]
local jobs, clock, before, offset, length, kind = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local MOST_FREED = 1048576  -- bytes of payloads: giving memory back takes its time
--@include _clock
--@include _guard
--@include _job
--@include _tally
--@include _tombstone
local bad = misfit(kind == 'zset' and 'zset' or 'list', place) or misfit('zset', leases)
if bad then return bad end

before = before or now
if kind == 'notes' then
  local notes = redis.call('LLEN', place)
  redis.call('DEL', place)
  tally('purged_total', notes)
  return {before, 0, notes, 0}
end
local ids = kind == 'zset' and redis.call('ZRANGE', place, offset, offset + length - 1)
  or redis.call('LRANGE', place, -offset - length, -offset - 1)
local gone, freed, more = 0, 0, #ids == length
local first, last, step = #ids, 1, -1
if kind == 'zset' then first, last, step = 1, #ids, 1 end
for i = first, last, step do
  if freed > MOST_FREED then more = true break end
  local id = ids[i]
  local stored = redis.pcall('HMGET', jobs .. id, 'enqueued_at_ms', 'status', 'entry_left', 'tombstone')
  local enqueued, entry_left = whole(stored[1]), stored[3]
  -- What claims to come from the future was not enqueued since this began: it is damaged, or the clock went back.
  if enqueued > before and enqueued <= now then
    offset = offset + 1
  elseif kind == 'pending' and entry_left and stored[2] == 'cancelled' then
    note_met(jobs .. id, entry_left, stored[4])
    redis.call('LREM', place, -1, id)
  else
    local bytes = redis.pcall('HSTRLEN', jobs .. id, 'payload')
    freed = freed + (type(bytes) == 'number' and bytes or 0)
    -- Its entry goes last: what an error left of it is found again by that.
    delete_record(jobs .. id, entry_left)
    redis.call('ZREM', leases, id)
    if kind == 'zset' then redis.call('ZREM', place, id) else redis.call('LREM', place, -1, id) end
    gone = gone + 1
  end
end
tally('purged_total', gone)
return {before, offset, gone, more and 1 or 0}
