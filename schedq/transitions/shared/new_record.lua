-- Write the record of the new job that begins at ARGV[at]; `due` is its due instant as text, if one is stored.
local function store(key, at, status, due)
  local last = at + 4 + ARGV[at + 4]
  if due then
    redis.call('HSET', key, 'id', ARGV[at], 'payload', ARGV[at + 1], 'status', status, 'attempts', '0',
      'enqueued_at_ms', stamp, 'run_at_ms', due, unpack(ARGV, at + 5, last))
  else
    redis.call('HSET', key, 'id', ARGV[at], 'payload', ARGV[at + 1], 'status', status, 'attempts', '0',
      'enqueued_at_ms', stamp, unpack(ARGV, at + 5, last))
  end
end
