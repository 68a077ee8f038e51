local FINISHED = {completed = true, failed = true, cancelled = true}

-- Lua's own conversion writes 15 digits as 2.5e+14.
local function digits(number) return string.format('%.0f', number) end

-- A stored count, whoever wrote it: garbage, NaN, infinities and negatives read as 0.
local function whole(text)
  local number = tonumber(text or '')
  if not number or number ~= number or number < 0 or number > 9007199254740991 then return 0 end
  return math.floor(number)
end

-- The named fields of a job, or nil and why it can't be run. `status` and `payload` come first in every list.
local function read_job(id, ...)
  if #id > 64 or id == '' or string.find(id, '[^%w_-]') then return nil, 'its id breaks the rule for ids' end
  local fields = redis.pcall('HMGET', jobs .. id, ...)
  if fields.err then return nil, 'its data is of the wrong type' end
  if not fields[1] and not fields[2] and redis.call('EXISTS', jobs .. id) == 0 then
    return nil, 'its data is gone'
  end
  return fields
end
