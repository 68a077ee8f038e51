-- Whether the queue's own limits allow no start now.
local function is_queue_full()
  local queue = gate_of('')
  if queue.concurrency and redis.call('LLEN', processing) >= queue.concurrency then return true end
  return rate_ends(queue, queue.rates, '') ~= nil
end
