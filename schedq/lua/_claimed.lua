-- What a claimed job looks like to its worker; `ClaimedJob.from_reply` reads it.
local function claimed(id, payload, attempts, token, most, backoff, timeout, crashes, enqueued, due)
  return {id, payload or '', attempts, token, most or '', backoff or '', timeout or '', crashes or '',
    enqueued or '', due or ''}
end
