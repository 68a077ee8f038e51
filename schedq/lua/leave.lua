--[[
A worker goes, in order: it is forgotten, and with it the promoter lease, or the place of a standby, if it holds that.

KEYS  1 workers (zset)  2 this worker (hash)  3 promoter (string)  4 standbys (hash)
ARGV  1 worker id  2 promoter id
Returns  1
]]
local workers, me, promoter, standbys = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, promoter_id = ARGV[1], ARGV[2]
--@include _standby
redis.pcall('ZREM', workers, id)
redis.call('DEL', me)
if redis.pcall('GET', promoter) == promoter_id then redis.call('DEL', promoter) end
leave_place(promoter_id)
return 1
