-- The outcome of a slot, or of several consecutive ones: a line of JSON. The newest is at the left; about `kept` stay.
local now_text = digits(now)
local function slot_line(slot, to, count, outcome, note)
  return '{"slot_ms":' .. slot .. ',"to_ms":' .. to .. ',"count":' .. count .. ',"outcome":"' .. outcome .. '",' .. note
    .. ',"at_ms":' .. now_text .. '}'
end

-- If an error ended the script after writing the lines, they may be there already. A damaged log never stops a slot.
local function write_slot_log(key, lines, kept, may_be_there)
  if may_be_there then
    local newest, begins = redis.pcall('LINDEX', key, 0), string.match(lines[#lines], '^{"slot_ms":%d+,"to_ms":%d+,')
    if type(newest) == 'string' and string.sub(newest, 1, #begins) == begins then return end
  end
  local length = redis.pcall('LPUSH', key, unpack(lines))
  if type(length) == 'number' and length > kept + 20 then redis.pcall('LTRIM', key, 0, kept - 1) end
end
