--[[
Resume a task: put its held jobs back, as the next in line, in their order.

A call puts back at most `limit` jobs, the newest first, since each comes before those that were put back before. Until all
are back, claims take the jobs of this lane before any others, so that their order is kept. If the caller dies meanwhile,
they take all of them from there.

KEYS  paused_tasks (hash), held (zset), lanes (hash), pending (list), wake (zset), paused (string), asleep (hash), log (stream),
      resting (zset), gate_turns (hash)
ARGV  clock, log_size
      task: its name
      again (flag): whether this continues an earlier call
      limit (number): the most jobs to put back
Returns  {1 if the task was paused, else 0, how many of its jobs are still held}
]]
local MOST_ROUSED = 500
--@include clock
--@include checks
--@include numbers
--@include wake
--@include log
--@include lanes
--@include paused_tasks
local bad = wrong_type('list', pending) or wrong_type('zset', held) or wrong_type('hash', paused_tasks, lanes)
if bad then return bad end

if again and is_task_paused(task) then return {0, 0} end  -- paused again in the meantime
local was = redis.call('HDEL', paused_tasks, task)
local number, left = lane_of(task), 0
if number then
  local page, ids = in_lane(number, limit, true), {}
  for n = 1, #page, 2 do ids[#ids + 1] = page[n] end
  if #ids > 0 then
    allow_when_full(held)
    redis.call('HSET', lanes, 'first', number)
    redis.call('RPUSH', pending, unpack(ids))
    redis.call('ZREM', held, unpack(ids))
  end
  left = redis.call('ZCOUNT', held, scores_of(number))
  if left == 0 then
    redis.call('HDEL', lanes, 'first')
    tidy_lanes({{number = number, task = task}})
  end
end
-- Keys of gates whose next job is of a paused task rest until now; see claim_gates.lua. The promoter looks at all lanes if
-- there are too many for a call.
local resting_keys = was == 1 and redis.pcall('ZRANGE', resting, '+inf', '+inf', 'BYSCORE', 'LIMIT', 0, MOST_ROUSED) or {}
local again_at = {}
for _, name in ipairs(resting_keys) do again_at[#again_at + 1], again_at[#again_at + 2] = now, name end
if #resting_keys == MOST_ROUSED then redis.pcall('HSET', gate_turns, ' look', '1') end
if #again_at > 0 then redis.call('ZADD', resting, unpack(again_at)) end
if was == 1 or number then set_wake() end
if was == 1 then write_log('resume', '', 0, 'task ' .. task) end
return {was, left}
