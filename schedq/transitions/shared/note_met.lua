-- Note that an entry of a job that was cancelled while `pending` was long was reached; see shared/tombstone.lua.
local function note_met(key, entry_left, tombstone)
  if whole(entry_left) > 1 then
    redis.call('HSET', key, 'entry_left', digits(whole(entry_left) - 1))
  elseif tombstone then
    redis.call('UNLINK', key)
  else
    redis.call('HDEL', key, 'entry_left')
  end
end
