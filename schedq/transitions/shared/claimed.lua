-- What a claimed job looks like to its worker; `ClaimedJob.from_reply` reads it. One without a trace, and whose task no
-- worker lacked, is shorter by that.
local function claimed(id, payload, attempts, token, most, backoff, timeout, crashes, enqueued, due, trace, unknown)
  return {id, payload or '', attempts, token, most or '', backoff or '', timeout or '', crashes or '',
    enqueued or '', due or '', trace or (unknown and '') or nil, unknown or nil}
end
