--[[
Record how an operation of a run ended, unless that is recorded already, for the worker that holds the job.

With the winner of a race, messages that the losing branches had taken go back to their boxes. The worker's memo is written
even if the job was asked to stop, or memory is full: what was done is done.

A `keep` says that what was done until then stays done. An undo that has succeeded is no longer open.

KEYS  leases (zset), undos (zset)
ARGV  jobs, id, token
      begins: `run` as it is if nothing was recorded before
      name: the operation
      memo: JSON: kind, outcome, value, began_ms, ended_ms, attempt
      replaced: an older memo that has no more meaning, or ''
      losers...: names of operations in branches that lost a race
Returns  {OK | EXISTS, 1 if the job was asked to stop, else 0, what is stored} | {FULL} | {LOST}
]]
--@include checks
--@include numbers
--@include run
--@include undo
local job = held_run(id, token, 'step:' .. name, 'step:' .. replaced)
if not job then return {'LOST'} end
local stops = job[3] and 1 or 0
if job[6] then return {'EXISTS', stops, job[6]} end
local key, run = jobs .. id, job[4] or begins
if job[7] then run = counted(run, job[7], -1) end
local undone = string.match(name, '~undo ')
if not undone and not has_room(run, memo) then return {'FULL'} end

memo, run = numbered(memo, run)
if undone and outcome_of(memo) == 'ok' then run = with_number(run, 'undos', math.max(0, open_undos(run) - 1)) end
if string.find(memo, '^%["keep"') then run = without(run, 'undos') end
local changes, gone, boxes = {}, job[7] and {'step:' .. replaced} or {}, {}

-- A message goes back in front of those that arrived later. The last one taken is put back first. The memo stays as one that
-- says so, because one command then changes all.
local function give_back(loser, taken)
  local text, began, arrival, tail, topic =
    string.match(taken, '^%["receive","ok",(.*),(%d+),(%d+)(,%d+,%d+),"([%w_.-]+)"%]$')
  if not text then return end
  local field, returned = 'inbox:' .. topic, '["receive","returned",null,' .. began .. ',' .. arrival .. tail .. ']'
  boxes[field] = boxes[field] or redis.call('HGET', key, field) or ''
  boxes[field] = arrival .. ' ' .. text .. (boxes[field] ~= '' and '\n' .. boxes[field] or '')
  changes[#changes + 1], changes[#changes + 2] = 'step:' .. loser, returned
  run = counted(counted(run, taken, -1), returned, 1)
end

for i = #ARGV, losers_start, -1 do
  gone[#gone + 1], gone[#gone + 2] = 'until:' .. ARGV[i], 'tries:' .. ARGV[i]
  local taken = redis.call('HGET', key, 'step:' .. ARGV[i])
  if taken then give_back(ARGV[i], taken) end
end
for field, box in pairs(boxes) do changes[#changes + 1], changes[#changes + 2] = field, box end
allow_when_full(leases)
write_memo(key, name, memo, run, unpack(changes))
if open_undos(job[4]) > 0 and open_undos(run) == 0 then redis.pcall('ZREM', undos, id) end
if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
return {'OK', stops, memo}
