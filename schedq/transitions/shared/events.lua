-- Tell subscribers about a job: `attempts` is a number or its text, `note` more of the event's JSON. It is a hint, so it never
-- stops a move.
local function publish_event(id, status, attempts, waiter, note)
  local text = '{"id":' .. cjson.encode(id) .. ',"status":"' .. status .. '","attempts":' .. (type(attempts) == 'string' and attempts or digits(attempts))
    .. ',"at_ms":' .. stamp .. (note or '') .. '}'
  redis.pcall('PUBLISH', events, text)
  if waiter and waiter ~= '' then redis.pcall('PUBLISH', waiter, text) end
end
