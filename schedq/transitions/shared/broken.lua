local MOST_BROKEN = 1000

-- Keep a note of a job that can't be run, so that nothing is dropped silently.
local function to_broken(id, reason)
  local note = '{"id":' .. cjson.encode(id) .. ',"reason":"' .. reason .. '","at_ms":' .. stamp .. '}'
  redis.call('LPUSH', broken, note)
  redis.call('LTRIM', broken, 0, MOST_BROKEN - 1)
  add_to_total('broken_total', 1)
end
