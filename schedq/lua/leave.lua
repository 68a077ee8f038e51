--[[
A worker goes, in order: it is forgotten, and the promoter lease with it if it holds that.

KEYS  1 workers (zset)  2 this worker (hash)  3 promoter (string)
ARGV  1 worker id  2 promoter id
Returns  1
]]
local workers, me, promoter = KEYS[1], KEYS[2], KEYS[3]
local id, promoter_id = ARGV[1], ARGV[2]
redis.pcall('ZREM', workers, id)
redis.call('DEL', me)
if redis.pcall('GET', promoter) == promoter_id then redis.call('DEL', promoter) end
return 1
