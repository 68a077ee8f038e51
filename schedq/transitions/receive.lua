--[[
Take the first message of a topic that is in time, for the worker that holds the job.

A message is in time if it arrived no later than the instant at which the wait ends, whenever this script looks. It leaves
its box with the memo that has it. Without one, the wait has ended if its instant has passed, which is a memo, too. The
memo says when the message arrived, or when the wait ended.

KEYS  leases (zset)
ARGV  jobs, clock, id, token
      begins: `run` as it is if nothing was recorded before
      name: the operation
      topic
      timeout (number): ms, or '' for no limit
Returns  {OK | EXISTS, 1 if the job was asked to stop, else 0, memo} | {WAITS, the same, the instant or ''} | {FULL} | {LOST}
]]
local LAST_INSTANT = 253402300799999
--@include clock
--@include checks
--@include numbers
--@include run
--@include inbox
local job = held_run(id, token, 'step:' .. name, 'until:' .. name, 'inbox:' .. topic)
if not job then return {'LOST'} end
local stops = job[3] and 1 or 0
if job[6] then return {'EXISTS', stops, job[6]} end

local key, run = jobs .. id, job[4] or begins
local ends, since = string.match(job[7] or '', '^(%d+) (%d+)$')
ends, since = ends or digits(timeout and math.min(now + timeout, LAST_INSTANT) or LAST_INSTANT), since or stamp
local arrival, text, left = first_message(job[8] or '', tonumber(ends))
if not arrival and now < tonumber(ends) then
  allow_when_full(leases)
  if not job[7] then redis.call('HSET', key, 'until:' .. name, ends .. ' ' .. since, 'run', run) end
  return {'WAITS', stops, tonumber(ends) < LAST_INSTANT and ends or ''}
end
local memo = '["receive","' .. (arrival and 'ok' or 'timeout') .. '",' .. (text or 'null') .. ',' .. since .. ','
  .. (arrival or ends) .. ',' .. digits(whole(job[5])) .. ']'
if not has_room(run, memo) then return {'FULL'} end
memo, run = numbered(memo, run, arrival and ',"' .. topic .. '"')
allow_when_full(leases)
if arrival then write_memo(key, name, memo, run, 'inbox:' .. topic, left) else write_memo(key, name, memo, run) end
return {'OK', stops, memo}
