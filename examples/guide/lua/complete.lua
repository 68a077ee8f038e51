--[[
Complete an attempt if the caller still holds the claim.

KEYS  1 processing (list)  2 completed (list)  3 the job (hash)
ARGV  1 id  2 claim token  3 now, ms  4 result as JSON  5 seconds to keep the record  6 length of the history
Returns  1, or 0 if the claim now belongs to another worker: then nothing is written
]]
if redis.call('HGET', KEYS[3], 'claim_token') ~= ARGV[2] then return 0 end

redis.call('LREM', KEYS[1], 1, ARGV[1])
-- The token stays in the hash, as in the guide. Deleting it here would also reject a second `complete` or `fail`.
redis.call('HSET', KEYS[3], 'status', 'completed', 'completed_at_ms', ARGV[3], 'result', ARGV[4])
redis.call('EXPIRE', KEYS[3], ARGV[5])
redis.call('LPUSH', KEYS[2], ARGV[1])
redis.call('LTRIM', KEYS[2], 0, ARGV[6] - 1)
return 1
