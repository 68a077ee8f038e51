--[[
Cancel a waiting job, or ask a running one to stop.

If `pending` is longer than 10,000, the entry stays there, and the claim that reaches it drops it: searching such a long
list would block all other clients. A run that has something to undo does that first: it is asked to, whether it waits or runs.

KEYS  pending (list), delayed (zset), processing (list), leases (zset), cancelled (list), stats (hash), log (stream),
      held (zset), resting (zset), groups (zset), wake (zset), paused (string), asleep (hash)
ARGV  jobs, clock, events, log_size, group_keys
      request: a new id, by which a repeated request is recognized
      id: the job
      failed_history (number), failed_ttl_ms, min_keep_ms (number)
      state: the state the job must be in, or '' for any
Returns  cancelled | asked | no
]]
--@include clock
--@include checks
--@include in_transit
--@include numbers
--@include job
--@include totals
--@include wake
--@include events
--@include log
--@include processing
--@include tombstone
--@include trim
--@include idempotent
--@include retention
--@include group_end
--@include undo
--@include cancel
local bad = wrong_type('list', pending, processing, cancelled) or wrong_type('zset', delayed, leases)
if bad then return bad end

local job = read_job(id, 'status', 'payload', 'request', 'attempts', 'waiter', 'failed_ttl_ms', 'group', 'waits', 'run')
if not job then return 'no' end
local before = earlier_reply(job[3], request)
if before then return before end
if FINISHED[job[1]] then return 'no' end
local function stands()
  return is_processing(id) and 'processing' or (redis.call('ZSCORE', delayed, id) and 'delayed' or 'pending')
end
if state ~= '' and (stands() ~= state or undoing_of(job[9])) then return 'no' end  -- it was counted in the state before
allow_when_full(leases)
return cancel_job(id, job, request)
