local MOST_HEADERS = 4096  -- bytes; see model/headers.py

-- A claimed job as its worker gets it; `ClaimedJob.from_reply` reads it. The last three values are left out if they are
-- not set.
local function claimed(id, payload, attempts, token, most, backoff, timeout, crashes, enqueued, due, trace, unknown, headers)
  if headers and #headers > MOST_HEADERS then headers = nil end
  return {id, payload or '', attempts, token, most or '', backoff or '', timeout or '', crashes or '', enqueued or '',
    due or '', trace or ((unknown or headers) and '') or nil, unknown or (headers and '') or nil, headers or nil}
end
