--[[
Fail an attempt if the caller still holds the claim: retry at once from the end of the queue, or fail for good.

KEYS  1 processing (list)  2 pending (list)  3 failed (list)  4 the job (hash)
ARGV  1 id  2 claim token  3 now, ms  4 error  5 seconds to keep the record  6 length of the history
      7 whether attempts are left (1 or 0)
Returns  1, or 0 if the claim now belongs to another worker: then nothing is written
]]
if redis.call('HGET', KEYS[4], 'claim_token') ~= ARGV[2] then return 0 end

redis.call('LREM', KEYS[1], 1, ARGV[1])
redis.call('HSET', KEYS[4], 'claim_token', '', 'last_error', ARGV[4], 'last_error_at_ms', ARGV[3])
if ARGV[7] == '1' then
  redis.call('HSET', KEYS[4], 'status', 'pending')
  redis.call('LPUSH', KEYS[2], ARGV[1])
else
  redis.call('HSET', KEYS[4], 'status', 'failed')
  redis.call('EXPIRE', KEYS[4], ARGV[5])
  redis.call('LPUSH', KEYS[3], ARGV[1])
  redis.call('LTRIM', KEYS[3], 0, ARGV[6] - 1)
end
return 1
