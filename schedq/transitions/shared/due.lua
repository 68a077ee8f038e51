-- Publish that `delayed` has a new earliest instant. If there is no promoter to wait for it, wake a client that claims
-- manually, so that it learns of the instant.
local function announce_due(instant)
  redis.pcall('PUBLISH', due_channel, digits(instant))
  if redis.call('EXISTS', promoter) == 0 then set_wake() end
end
