local MOST_ATTEMPTS = 10

-- The job's history with one more ended attempt: one line of JSON per attempt, the last 10.
local function with_attempt(history, attempt, worker, started, outcome, note)
  local line = '{"attempt":' .. digits(attempt) .. ',"worker":' .. cjson.encode(worker or '')
    .. ',"started_at_ms":' .. digits(started) .. ',"ended_at_ms":' .. stamp
    .. ',"outcome":"' .. outcome .. '"'
    .. (note ~= '' and ',"error":' .. cjson.encode(note) or '') .. '}'
  if not history or history == '' then return line end
  local _, breaks = string.gsub(history, '\n', '')
  while breaks >= MOST_ATTEMPTS - 1 do
    history = string.sub(history, (string.find(history, '\n', 1, true)) + 1)
    breaks = breaks - 1
  end
  return history .. '\n' .. line
end
