-- When a run that is suspended for these waits is due: `now` if a box has a message that is in time, if a group has ended or
-- is gone, or if it waits for nothing. A wait is: kind, name, instant in ms or null, topic, group. Needs inbox.
local function due_for(key, waits)
  local due = #waits == 0 and now or LAST_INSTANT
  for _, wait in ipairs(waits) do
    local at, topic = tonumber(wait[3]) or LAST_INSTANT, wait[4]
    if topic and topic ~= '' and first_message(redis.call('HGET', key, 'inbox:' .. topic) or '', at) then return now end
    local group = wait[5] and wait[5] ~= '' and group_keys .. wait[5]
    local status = group and redis.pcall('HGET', group, 'status')
    if group and status ~= 'running' and status ~= 'cancelling' then return now end
    due = math.min(due, at)
  end
  return due
end
