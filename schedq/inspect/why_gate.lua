--[[
Read what decides when a pending job may start: the queue's own limits, its gate and its key; writes nothing.

KEYS  gates (hash), gate_holds (zset), held (zset), lanes (hash), processing (list), gate_turns (hash)
ARGV  jobs, clock, gate_keys
      gate: the name of its gate, or '' if it has none
      key: its key there
Returns  {the queue's limits or '', condition, its end or '', cause, jobs running,
         the gate's limits or '', condition, its end or '', cause, jobs running, start of the one that runs longest or '',
         1 if all were looked at, else 0, ready keys,
         condition of the key, its end or '', cause, jobs running, start of the one that runs longest or '',
         the job at the front of its lane or '', keys before it in turn or -1,
         since when the gate and the key are paused, or ''}
         The queue's part is all if the job has no gate.
]]
--@include clock
--@include checks
--@include numbers
--@include in_lane
--@include gate_facts
--@include gate_state
local bad = wrong_type('hash', gates, lanes) or wrong_type('zset', gate_holds, held) or wrong_type('list', processing)
if bad then return bad end

local busy = redis.call('LLEN', processing)
local state, at, cause = state_of_gate(gate_of(''), busy)
local reply = {redis.call('HGET', gates, '') or '', state, at, cause, busy}
local function add(...)
  for _, value in ipairs({...}) do reply[#reply + 1] = value end
end
if gate == '' then return reply end

local its = gate_of(gate)
local running = its.is_damaged and 0 or redis.call('ZCARD', its.running)
local members = its.is_damaged and {} or redis.call('ZRANGE', its.running, 0, MOST_STARTED - 1)
state, at, cause = state_of_gate(its, running)
add(redis.call('HGET', gates, gate) or '', state, at, cause, running, earliest_start(members), running <= #members and 1 or 0,
  its.is_damaged and 0 or redis.call('ZCARD', its.ready))

local number = lane_of_key(its, key)
local of_key = its.is_damaged and 0 or runs_of(its, key)
members = of_key > 0 and redis.call('ZRANGE', its.running, '[' .. key .. ' ', '(' .. key .. '!', 'BYLEX', 'LIMIT', 0, MOST_STARTED) or {}
state, at, cause = state_of_key(its, key, number, of_key)
add(state, at, cause, of_key, earliest_start(members), number and in_lane(number, 1)[1] or '',
  not its.is_damaged and redis.call('ZRANK', its.ready, key) or -1)
for _, name in ipairs({gate, member(its, key)}) do
  local since = whole(redis.pcall('HGET', gate_turns, ' paused ' .. name))
  add(since > 0 and digits(since) or '')
end
return reply
