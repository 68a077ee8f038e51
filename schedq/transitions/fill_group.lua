--[[
Make a group, add a page of items to it, and close it after the last one.

A page that was added before changes nothing: `at` says how many items come before it, and those that are there already are
passed over. So a producer that died begins again, or continues behind what is there. As many items become jobs as may at
once. The group ends in this script if nothing is left to do, as in one without items.

A note in the record says what the length of `items` and the total will be, before the items are added. If an error ends the
script in between, the length shows whether they were.

KEYS  groups (zset), pending (list), delayed (zset), stats (hash), wake (zset), paused (string), asleep (hash), promoter (string),
      gates (hash)
ARGV  jobs, clock, due_channel, group_keys
      name: of the group
      digest: of what makes two definitions the same
      definition: fields and values of the record as a JSON array
      gate_limits: the limits of the gates of its jobs as a JSON object, by their names; or ''
      at (number): how many items come before this page
      close (flag): whether nothing follows it
      run: the job whose run it works for, or ''
      token: of the claim of that job
      items...
Returns  {OK | SEALED (nothing was added) | LOST (the claim has ended) | CONFLICT (another definition, or it is being deleted) | GAP, the total, its status}
]]
--@include clock
--@include checks
--@include numbers
--@include totals
--@include wake
--@include due
--@include group_end
--@include wake_run
--@include group_next
--@include group_total
local key = group_keys .. name
local bad = wrong_type('zset', groups, delayed) or wrong_type('list', pending) or wrong_type('hash', key)
if bad then return bad end

if run ~= '' then
  local held = redis.pcall('HMGET', jobs .. run, 'status', 'claim_token')
  if held.err or held[1] ~= 'processing' or held[2] ~= token then return {'LOST', 0, ''} end
end
local is_new = redis.call('EXISTS', key) == 0
if is_new then
  if at > 0 then return {'GAP', 0, ''} end
  redis.call('ZADD', groups, 0, name)  -- refused when memory is full, before anything is written
  redis.call('HSET', key, 'status', 'running', 'digest', digest, 'total', '0', 'ended', '0', 'succeeded', '0', 'began_at_ms', stamp,
    'filled_at_ms', stamp, unpack(cjson.decode(definition)))
end
if gate_limits ~= '' then
  for gate, limits in pairs(cjson.decode(gate_limits)) do
    local has_set = redis.pcall('HSETNX', gates, gate, limits)
    if has_set == 1 and limits ~= '{}' then redis.call('HSET', gates, gate .. ' code', limits) end
  end
end
local found = redis.call('HMGET', key, 'digest', 'status', 'closed', 'total')
if found[1] ~= digest or found[2] == 'deleted' then return {'CONFLICT', whole(found[4]), found[2] or ''} end
-- Written again, so that WAIT and WAITAOF of a repetition cover a write of its own connection.
redis.call('HSET', key, 'digest', digest)
if found[3] == '1' then return {'SEALED', whole(found[4]), found[2]} end
local group = group_named(name)
if not group then return {'SEALED', whole(found[4]), found[2]} end
if is_new then group.was_marked, group.look_at = false, nil end
resolve_total(group)
if at > group.total then return {'GAP', group.total, found[2]} end

local first = items_start + group.total - at
if first <= #ARGV then add_items(group, unpack(ARGV, first)) end
redis.call('HSET', key, 'filled_at_ms', stamp)
if close then redis.call('HSET', key, 'closed', '1') end
told[name] = group
local has_more, has_made = go_on_with_groups()
if has_made then set_wake() end
if has_more or group.was_marked then announce_due(now) end
return {'OK', group.total, redis.call('HGET', key, 'status')}
