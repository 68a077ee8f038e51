local FINISHED = {completed = true, failed = true, cancelled = true}

-- The named fields of a job, or nil and the reason why it can't be run. `status` and `payload` must be the first two.
local function read_job(id, ...)
  if #id > 64 or id == '' or string.find(id, '[^%w_-]') then return nil, 'its id breaks the rule for ids' end
  local fields = redis.pcall('HMGET', jobs .. id, ...)
  if fields.err then return nil, 'its data is of the wrong type' end
  if not fields[1] and not fields[2] and redis.call('EXISTS', jobs .. id) == 0 then
    return nil, 'its data is gone'
  end
  return fields
end
