--[[
One page of a list or zset with the facts that overviews need of each job: times, attempts, worker, beginning of payload.

KEYS  source (list or zset)
ARGV  jobs, clock
      order: 'newest' (a list, from its left) | 'oldest' (a list, from its right) | 'due' (a zset)
      offset (number), limit (number)
Returns  {now, per job: id, when it became ready or '', how long it has waited in ms, started or '', ended or '', attempts,
         worker, beginning of its error, beginning of its payload, since when no worker had its task or 0, what it
         reported or ''}; fewer jobs than requested if they are large
]]
local MOST_BYTES, MOST_SHOWN, MOST_REPORTED = 1048576, 400, 2000
--@include clock
--@include checks
--@include numbers
--@include ready_since
local bad = wrong_type(order == 'due' and 'zset' or 'list', source)
if bad then return bad end

local ids = {}
if order == 'due' then
  ids = redis.call('ZRANGE', source, offset, offset + limit - 1)
elseif order == 'newest' then
  ids = redis.call('LRANGE', source, offset, offset + limit - 1)
else
  local page = redis.call('LRANGE', source, -offset - limit, -offset - 1)
  for i = #page, 1, -1 do ids[#ids + 1] = page[i] end
end

local fields = {unpack(READY)}
for _, name in ipairs({'started_at_ms', 'completed_at_ms', 'attempts', 'worker', 'last_error', 'payload',
  'unknown_since_ms', 'progress', 'status'}) do
  fields[#fields + 1] = name
end
local reply, bytes = {now}, 0
for i, id in ipairs(ids) do
  local job = redis.pcall('HMGET', jobs .. id, unpack(fields))
  if job.err then job = {} end
  local texts, started = {job[11] or '', job[12] or '', job[13] or ''}, whole(job[8])
  for n = 1, 3 do bytes = bytes + #texts[n] end
  if bytes > MOST_BYTES and i > 1 then break end
  local ended = job[16] == 'completed' and job[9] or job[16] == 'failed' and job[4] or ''
  local ready = started > 0 and ready_at(job, started)
  local row = {id, ready and digits(ready) or '', digits(waited(job)), digits(started), ended or '', digits(whole(job[10]))}
  for n = 1, 3 do row[6 + n] = string.sub(texts[n], 1, MOST_SHOWN) end
  row[10] = digits(whole(job[14]))
  row[11] = #(job[15] or '') <= MOST_REPORTED and job[15] or ''
  for _, word in ipairs(row) do reply[#reply + 1] = word end
end
return reply
