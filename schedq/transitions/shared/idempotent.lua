-- An operator's request that is sent again gets the reply that the first sending got.
local function earlier_reply(stored, request)
  if stored and string.sub(stored, 1, #request + 1) == request .. ' ' then return string.sub(stored, #request + 2) end
end
