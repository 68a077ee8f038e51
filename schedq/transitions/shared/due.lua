-- Publish that `delayed` has a new earliest instant. If no promoter sleeps until it, a client that claims manually must
-- look, to know when to wake.
local function announce_due(instant)
  redis.pcall('PUBLISH', due_channel, digits(instant))
  if redis.call('EXISTS', promoter) == 0 then set_wake() end
end
