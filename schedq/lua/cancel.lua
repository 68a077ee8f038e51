--[[
Cancel a job that waits, or ask a running one to stop.

While `pending` is longer than 10,000 the entry stays where it is and the claim that meets it drops it: searching so
long a list would hold up everybody.

KEYS  1 pending (list)  2 delayed (zset)  3 processing (list)  4 leases (zset)  5 cancelled (list)  6 stats (hash)
      7 log (stream)
ARGV  1 jobs prefix  2 clock  3 events channel  4 log size  5 request  6 id  7 failed_history  8 min_keep, ms
      9 the state it must be in, or '' for any
Returns  cancelled | asked | no
]]
local pending, delayed, processing, leases, cancelled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local stats, log = KEYS[6], KEYS[7]
local jobs, clock, events, log_size, request, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local failed_history, min_keep, state = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
--@include _clock
--@include _guard
--@include _mark
--@include _job
--@include _tally
--@include _tell
--@include _place
--@include _tombstone
--@include _trim
--@include _once
--@include _cancel
local bad = misfit('list', pending, processing, cancelled) or misfit('zset', delayed, leases)
if bad then return bad end

local job = read_job(id, 'status', 'payload', 'request', 'attempts', 'waiter')
if not job then return 'no' end
local before = answered(job[3], request)
if before then return before end
if FINISHED[job[1]] then return 'no' end
local function stands()
  return is_processing(id) and 'processing' or (redis.call('ZSCORE', delayed, id) and 'delayed' or 'pending')
end
if state ~= '' and stands() ~= state then return 'no' end
open_memory(leases)
return cancel_job(id, job, request)
