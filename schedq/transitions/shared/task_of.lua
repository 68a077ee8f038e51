local FIELDS_OF_CALLS = {task = true, args = 'number', kwargs = 'string'}

-- The name of the task that a payload calls, or nil; as `is_task_call` in model/tasks.py. Payloads are decoded only here,
-- and never encoded again, because cjson changes what it decodes. Nothing decodes one while no task is paused.
local function task_of(payload)
  local is_json, found = pcall(cjson.decode, payload or '')
  if not is_json or type(found) ~= 'table' or type(found.task) ~= 'string' then return nil end
  for key, value in pairs(found) do
    local kind = FIELDS_OF_CALLS[key]
    if not kind or (kind ~= true and (type(value) ~= 'table' or (next(value) and type(next(value)) ~= kind))) then return nil end
  end
  return found.task
end
