-- An entry of a cancelled job was reached whose `entry_left` says that it was left in `pending`.
local function note_met(key, entry_left, tombstone)
  if whole(entry_left) > 1 then
    redis.call('HSET', key, 'entry_left', digits(whole(entry_left) - 1))
  elseif tombstone then
    redis.call('UNLINK', key)
  else
    redis.call('HDEL', key, 'entry_left')
  end
end
