-- Write the record of the new job that begins at ARGV[at]; `due` is its due instant as text, if one is stored. That of a
-- delayed job has no `id`, which is the end of its key and read by no one before a worker may take the job: `promote_due`
-- writes it. Without it Redis allocates 160 bytes for many a record in place of 192.
local function store(key, at, status, due)
  local last = at + 4 + ARGV[at + 4]
  if status == 'delayed' then
    redis.call('HSET', key, 'payload', ARGV[at + 1], 'status', status, 'attempts', '0',
      'enqueued_at_ms', stamp, 'run_at_ms', due, unpack(ARGV, at + 5, last))
  elseif due then
    redis.call('HSET', key, 'id', ARGV[at], 'payload', ARGV[at + 1], 'status', status, 'attempts', '0',
      'enqueued_at_ms', stamp, 'run_at_ms', due, unpack(ARGV, at + 5, last))
  else
    redis.call('HSET', key, 'id', ARGV[at], 'payload', ARGV[at + 1], 'status', status, 'attempts', '0',
      'enqueued_at_ms', stamp, unpack(ARGV, at + 5, last))
  end
end
