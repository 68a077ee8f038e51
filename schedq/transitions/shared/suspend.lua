-- Whether a wait of a run is over: its instant has passed, or its box has a message that is in time. Else its instant is noted
-- in `due`. A wait is: kind, name, instant in ms or null, topic. Needs inbox.
local function is_over(key, wait, due)
  local at = tonumber(wait[3] or LAST_INSTANT) or LAST_INSTANT
  if at <= now then return true end
  due[#due + 1] = at
  return wait[4] and wait[4] ~= '' and first_message(redis.call('HGET', key, 'inbox:' .. wait[4]) or '', at) and true or false
end

-- When a run that is suspended for these waits is due; `now` if it need not wait.
local function due_for(key, waits)
  local due = {LAST_INSTANT}
  for _, wait in ipairs(waits) do
    if is_over(key, wait, due) then return now end
  end
  return #waits == 0 and now or math.min(unpack(due))
end
