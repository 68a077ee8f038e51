--[[
Write down the application's settings, for processes that lack them, and the queue's name.

KEYS  1 settings (hash)
ARGV  1... field, value, ...
Returns  1
]]
local settings = KEYS[1]
--@include _guard
local bad = misfit('hash', settings)
if bad then return bad end

redis.call('HDEL', settings, '')
redis.call('HSET', settings, unpack(ARGV))
return 1
