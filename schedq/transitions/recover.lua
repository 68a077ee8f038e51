--[[
Return the jobs of a claim whose reply was lost: one page of `processing`, newest first.

KEYS  processing (list)
ARGV  jobs
      request: the claim's id
      offset (number), length (number)
Returns  {offset of the next page, or -1 at the end, started_at_ms, job, ...}, a job as in shared/claimed.lua
]]
--@include checks
--@include numbers
--@include job
--@include claimed
local bad = wrong_type('list', processing)
if bad then return bad end

local page = redis.call('LRANGE', processing, offset, offset + length - 1)
local reply = {#page < length and -1 or offset + length, 0}
for _, id in ipairs(page) do
  local job = read_job(id, 'status', 'payload', 'claim_token', 'attempts', 'max_attempts', 'backoff', 'timeout_ms',
    'crashes', 'enqueued_at_ms', 'run_at_ms', 'started_at_ms', 'trace',
    'unknown_since_ms', 'headers', 'gate', 'key', 'run')
  if job and job[1] == 'processing' and job[3] and string.sub(job[3], 1, #request + 1) == request .. '.' then
    reply[2] = whole(job[11])
    reply[#reply + 1] = claimed(id, job[2], digits(whole(job[4])), job[3], job[5], job[6], job[7], job[8], job[9], job[10],
      job[12], job[13], job[14], job[15] and job[15] .. ' ' .. (job[16] or ''), job[17])
  end
end
return reply
