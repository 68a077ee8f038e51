--[[
Renew the leases of jobs that the caller still holds, and store what their attempts report.

`claimed_at_ms` is updated too, because a reclaimer written after the Redis guide relies on it; `started_at_ms` stays.

KEYS  leases (zset)
ARGV  jobs, clock, events, visibility_ms (number)
      reports (number): how many of the jobs, the first ones, have something to report
      held...: per job: id, token, and of those that report also the number of the report, progress and meta as in
        model/progress.py
Returns  per job: OK | STOP (renewed, but asked to stop) | LOST (nothing is written)
]]
--@include clock
--@include checks
--@include numbers
--@include events
local bad = wrong_type('zset', leases)
if bad then return bad end

-- A report that was overtaken by a later one of the same attempt, on another connection, changes nothing.
local function store_report(id, number, progress, meta)
  local job = redis.call('HMGET', jobs .. id, 'progress', 'attempts', 'waiter')
  local last = tonumber(string.match(job[1] or '', '"report":(%d+),"at_ms":%d+}$') or '')
  if number ~= '0' and last and last >= tonumber(number) then return end
  local attempt = digits(whole(job[2]))
  local text = '{' .. (progress ~= '' and progress .. ',' or '') .. '"attempt":' .. attempt .. ',"report":' .. number
    .. ',"at_ms":' .. stamp .. '}'
  redis.call('HSET', jobs .. id, 'progress', text)
  if meta ~= '' then redis.call('HSET', jobs .. id, 'meta', meta) end
  publish_event(id, 'progress', whole(job[2]), job[3], progress ~= '' and ',' .. progress)
end

local words, ends = {}, {}
allow_when_full(leases)
local i, left = held_start, reports
while i < #ARGV do
  local id, token = ARGV[i], ARGV[i + 1]
  local job = redis.pcall('HMGET', jobs .. id, 'status', 'claim_token', 'stop')
  if not job.err and token ~= '' and job[1] == 'processing' and job[2] == token then
    redis.call('HSET', jobs .. id, 'claimed_at_ms', now)
    if left > 0 then store_report(id, ARGV[i + 2], ARGV[i + 3], ARGV[i + 4]) end
    ends[#ends + 1], ends[#ends + 2] = now + visibility_ms, id
    words[#words + 1] = job[3] and 'STOP' or 'OK'
  else
    words[#words + 1] = 'LOST'
  end
  i, left = i + (left > 0 and 5 or 2), left - 1
end
if #ends > 0 then redis.call('ZADD', leases, unpack(ends)) end
return words
