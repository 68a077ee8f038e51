--[[
Store new jobs and add each to `pending`, or to `delayed` if it is due later.

The first write is one that Redis refuses when memory is full, so then all jobs of a call fail and leave no trace.
Generated ids are new. A caller's id may exist: the same payload then changes nothing, and another payload is a conflict,
unless the caller requires that no job with that id exists (`create`) or wants a finished one replaced (`reuse`). A mark
in the record shows a repeated request which jobs its first sending created. A caller's id may also be in a history
although its record has expired, so the histories are searched for it, `completed` only at the old end, where such
entries are, and at the new end if records have ttls of their own. The reclaimer removes entries between them. The longer
the histories, the fewer jobs a call takes. If every job already exists, one field is written
again: WAIT and WAITAOF only cover writes of their own connection, so without a write a retry would be confirmed at once,
wrongly.

KEYS  pending (list), delayed (zset), stats (hash), wake (zset), paused (string)
RARE  completed (list), failed (list), cancelled (list), promoter (string), held (zset), asleep (hash)
ARGV  prefix, jobs, clock, due_channel, max_pending (number)
      whose_ids: 0 if all are generated, 1 if some are the caller's, 2 if some of those are to be reused
      new_jobs...: per job: id, payload, 'in' | 'at', milliseconds, count of option values, option field, value, ...
        For a caller's id 'in' and 'at' may be followed by ':', 'create' | 'reuse' | '', ':' and the mark
Returns  per job STORED | EXISTS | CONFLICT | FULL | WRONGTYPE | TAKEN and the status of the existing job | BUSY and its
         status | EXPIRES (it would before it is due); fewer words than jobs means "send the rest again"
]]
local theirs = whose_ids ~= '0'
local LAST_INSTANT, MOST_SEARCHED, NEWEST, MOST_WAITING = 253402300799999, 2000, 10000, 100000
--@include clock
--@include checks
--@include totals
--@include wake
--@include new_record

-- Fast path: most calls bring one job with a generated id that is due now.
local i = new_jobs_start
if not theirs and not max_pending and ARGV[i + 2] == 'in' and ARGV[i + 3] == '0' and #ARGV == i + 4 + ARGV[i + 4] then
  local id, key = ARGV[i], jobs .. ARGV[i]
  if redis.call('EXISTS', key) == 0 then
    local length = redis.pcall('LPUSH', pending, id)
    if type(length) == 'table' then return wrong_type('list', pending) or length end
    store(key, i, 'pending')
    add_to_total('enqueued_total', 1)
    set_wake()
    return {'STORED'}
  end
end
--@include numbers
--@include expiry
--@include due
local other_holder, is_for_next_call, note_holders, goes_to_lane, enter_lanes  -- see enqueue_unique.lua
--@include store_jobs
return words
