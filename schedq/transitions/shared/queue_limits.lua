-- Whether the queue's own limits allow no start now.
local function is_queue_full()
  local queue = gate_of('')
  if queue.concurrency and redis.call('LLEN', processing) >= queue.concurrency then return true end
  return queue.rates[1] and rate_ends(queue.rates, tats_of_gate(queue)) ~= nil or false
end
