-- Delete the record of a job that has finished. One that was cancelled in a long `pending` may have an entry there still
-- (`entry_left`): then so much stays that the claim which meets it drops it, and doesn't take it for lost data.
local function delete_record(key, entry_left)
  redis.call(entry_left and 'DEL' or 'UNLINK', key)
  if entry_left then redis.call('HSET', key, 'status', 'cancelled', 'entry_left', '1', 'tombstone', '1') end
end
