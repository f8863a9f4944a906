-- ListObjectsV2 from a table in memory, for nginx.py. One file per bucket, a line per object in the order of names:
-- the name, the name as XML, the name as `encoding-type=url` wants it, and the rest of its <Contents>; tabs between.
local listing = {}

local tables = {}

local function load(path)
  local names, texts, urls, facts = {}, {}, {}, {}
  for line in io.lines(path) do
    local name, text, url, fact = line:match("^([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$")
    local n = #names + 1
    names[n], texts[n], urls[n], facts[n] = name, text, url, fact
  end
  return {names = names, texts = texts, urls = urls, facts = facts}
end

-- The first index whose name is greater than `name`, or not less than it.
local function first(names, name, greater)
  local low, high = 1, #names + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    local before = names[middle] < name or (greater and names[middle] == name)
    if before then low = middle + 1 else high = middle end
  end
  return low
end

local escapes = {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;"}
local function escaped(text) return (text:gsub('[&<>"]', escapes)) end

local function refuse(status, code, message)
  ngx.status = status
  ngx.header["Content-Type"] = "application/xml"
  ngx.say('<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>', code, "</Code><Message>", message,
          "</Message></Error>")
end

function listing.answer(bucket, path)
  local asked = ngx.req.get_uri_args()
  if asked["list-type"] ~= "2" then
    return refuse(501, "NotImplemented", "Only ListObjectsV2 is served here.")
  end
  local t = tables[path]
  if not t then
    t = load(path)
    tables[path] = t
  end
  local prefix = asked["prefix"] or ""
  local most = math.min(tonumber(asked["max-keys"]) or 1000, 1000)
  local token = asked["continuation-token"]
  local after = token and ngx.decode_base64(token) or asked["start-after"]
  local at = first(t.names, prefix, false)
  if after then at = math.max(at, first(t.names, after, true)) end
  local encoded = asked["encoding-type"] == "url"
  local keys = encoded and t.urls or t.texts
  local delimiter = asked["delimiter"] or ""
  local out, count = {}, 0
  local function more() return t.names[at] ~= nil and t.names[at]:sub(1, #prefix) == prefix end
  while count < most and more() do
    local _, last = nil, nil
    if delimiter ~= "" then _, last = t.names[at]:find(delimiter, #prefix + 1, true) end
    if last then
      local common = t.names[at]:sub(1, last)
      out[#out + 1] = "<CommonPrefixes><Prefix>"
      out[#out + 1] = encoded and ngx.escape_uri(common) or escaped(common)
      out[#out + 1] = "</Prefix></CommonPrefixes>"
      at = first(t.names, common .. "\255", false)  -- past all that begin so: UTF-8 has no byte 255
    else
      out[#out + 1] = "<Contents><Key>"
      out[#out + 1] = keys[at]
      out[#out + 1] = "</Key>"
      out[#out + 1] = t.facts[at]
      out[#out + 1] = "</Contents>"
      at = at + 1
    end
    count = count + 1
  end
  local truncated = most > 0 and more()
  local head = {'<?xml version="1.0" encoding="UTF-8"?>\n',
                '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>', bucket,
                "</Name><Prefix>", escaped(prefix), "</Prefix><MaxKeys>", most, "</MaxKeys><KeyCount>", count,
                "</KeyCount><IsTruncated>", tostring(truncated), "</IsTruncated>"}
  if encoded then head[#head + 1] = "<EncodingType>url</EncodingType>" end
  if truncated then
    head[#head + 1] = "<NextContinuationToken>"
    head[#head + 1] = ngx.encode_base64(t.names[at - 1])
    head[#head + 1] = "</NextContinuationToken>"
  end
  local body = table.concat(head) .. table.concat(out) .. "</ListBucketResult>"
  ngx.header["Content-Type"] = "application/xml"
  ngx.header["Content-Length"] = #body
  ngx.print(body)
end

return listing
