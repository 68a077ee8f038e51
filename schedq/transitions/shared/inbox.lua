-- Boxes of messages: a line per message, its arrival in ms and its JSON text, in the order of arrival.

-- The first message that arrived no later than `by`: its arrival, its text, and the box without it; else nil.
local function first_message(box, by)
  local at = 1
  while at <= #box do
    local ends = string.find(box, '\n', at, true) or #box + 1
    local arrival, text = string.match(string.sub(box, at, ends - 1), '^(%d+) (.*)$')
    if arrival and tonumber(arrival) <= by then
      return arrival, text, string.sub(box, 1, at - 1) .. string.sub(box, ends + 1)
    end
    at = ends + 1
  end
end
