-- Delete the record of a finished job. A job that was cancelled while `pending` was long still has `entry_left` entries
-- there. A short record then stays as a tombstone, so that the claim that reaches them drops them instead of reporting
-- missing data.
local function delete_record(key, entry_left)
  redis.call(entry_left and 'DEL' or 'UNLINK', key)
  if entry_left then redis.call('HSET', key, 'status', 'cancelled', 'entry_left', entry_left, 'tombstone', '1') end
end
