-- The reply of an operator's request that was already carried out, for a repetition; else nil.
local function earlier_reply(stored, request)
  if stored and string.sub(stored, 1, #request + 1) == request .. ' ' then return string.sub(stored, #request + 2) end
end
