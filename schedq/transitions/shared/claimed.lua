-- A claimed job as its worker gets it; `ClaimedJob.from_reply` reads it. The last two values are left out if they are
-- not set.
local function claimed(id, payload, attempts, token, most, backoff, timeout, crashes, enqueued, due, trace, unknown)
  return {id, payload or '', attempts, token, most or '', backoff or '', timeout or '', crashes or '',
    enqueued or '', due or '', trace or (unknown and '') or nil, unknown or nil}
end
