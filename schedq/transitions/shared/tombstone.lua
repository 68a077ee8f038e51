-- Delete the record of a job that has finished. One that was cancelled in a long `pending` may have entries there still,
-- so many as `entry_left` says: then so much stays that the claim which meets them drops them, and doesn't take them for
-- lost data.
local function delete_record(key, entry_left)
  redis.call(entry_left and 'DEL' or 'UNLINK', key)
  if entry_left then redis.call('HSET', key, 'status', 'cancelled', 'entry_left', entry_left, 'tombstone', '1') end
end

-- One of these entries was met.
local function note_met(key, entry_left, tombstone)
  if whole(entry_left) > 1 then
    redis.call('HSET', key, 'entry_left', digits(whole(entry_left) - 1))
  elseif tombstone then
    redis.call('UNLINK', key)
  else
    redis.call('HDEL', key, 'entry_left')
  end
end
