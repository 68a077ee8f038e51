-- Needs numbers. The instant by which a job must have begun, or nil if it has none or its fields are damaged. An expiry
-- that begins with '+' counts from its enqueue; see model/expiry.py.
local function expires_at(expires, enqueued)
  local is_relative = string.sub(expires, 1, 1) == '+'
  local ms, from = whole(is_relative and string.sub(expires, 2) or expires), is_relative and whole(enqueued)
  if ms == 0 or from == 0 then return nil end
  return ms + (from or 0)
end
