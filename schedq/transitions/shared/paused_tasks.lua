local asked = {}  -- task -> whether it is paused

local function is_task_paused(task)
  if asked[task] == nil then asked[task] = redis.call('HEXISTS', paused_tasks, task) == 1 end
  return asked[task]
end
