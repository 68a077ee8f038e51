local MOST_HEADERS = 4096  -- bytes; see model/headers.py

-- A claimed job as its worker gets it; `ClaimedJob.from_reply` reads it. The last five values are left out if they are
-- not set. `gate` is "GATE KEY" for a job that belongs to a gate, and " " for another one if the queue has limits; `run` is
-- what is recorded of a workflow's run.
local function claimed(id, payload, attempts, token, most, backoff, timeout, crashes, enqueued, due, trace, unknown, headers, gate, run)
  if headers and #headers > MOST_HEADERS then headers = nil end
  if run then gate = gate or '' end
  return {id, payload or '', attempts, token, most or '', backoff or '', timeout or '', crashes or '', enqueued or '',
    due or '', trace or ((unknown or headers or gate) and '') or nil, unknown or ((headers or gate) and '') or nil,
    headers or (gate and '') or nil, gate or nil, run or nil}
end
