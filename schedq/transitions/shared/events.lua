-- Publish a move to subscribers, and write it to the audit stream. Both are hints, so they never stop a move.
local function publish_event(id, status, attempts, waiter, note)
  local text = '{"id":' .. cjson.encode(id) .. ',"status":"' .. status .. '","attempts":' .. digits(attempts)
    .. ',"at_ms":' .. stamp .. (note or '') .. '}'
  redis.pcall('PUBLISH', events, text)
  if waiter and waiter ~= '' then redis.pcall('PUBLISH', waiter, text) end
end

local function write_log(move, id, attempts)
  if log_size ~= '0' then
    redis.pcall('XADD', log, 'MAXLEN', '~', log_size, '*', 'move', move, 'id', id, 'attempts', attempts, 'at_ms', stamp)
  end
end
