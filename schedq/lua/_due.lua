-- Say that `delayed` has a new earliest instant. No promoter sleeps on it? Then somebody who claims by hand must
-- look, to know when to wake.
local function announce_due(instant)
  redis.pcall('PUBLISH', due_channel, digits(instant))
  if redis.call('EXISTS', promoter) == 0 then set_wake() end
end
