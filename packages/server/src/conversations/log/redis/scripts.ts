import { createHash } from "node:crypto";

/**
 * A Lua script on a stream (KEYS[1]) and its metadata (KEYS[2]), or on several pairs. Numbers are passed as text.
 */
export interface RedisScript {
  readonly lua: string;
  readonly sha: string;
}

/** The keys of a stream. They share a slot. */
export function keysOf(stream: string): [stream: string, meta: string] {
  return [stream, `{${stream}}:meta`];
}

/** The largest record of another program that is kept, and the latest time at which entries can be added. */
const MAX_FOREIGN_BYTES = 256 << 10;
const MAX_TIME = 1e14;

// Each script contains only the functions that it uses: Lua creates them at every call.

// Lua prints large numbers as 1.7e+12 without a format.
const TEXT = `
local function text(number) return string.format('%.0f', number) end`;

const SPLIT = `
local function split(id)
  local time, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(time), tonumber(seq)
end`;

// A stream without its metadata, or the reverse, counts as missing.
const LOOK = `
local found = redis.call('HMGET', meta, 'epoch', 'seq', 'time', 'floor', 'bytes', 'fence', 'generation')
if not found[1] or redis.call('EXISTS', stream) == 0 then found = nil end`;

const FIND = `
local stream, meta = KEYS[1], KEYS[2]
${LOOK}`;

// Redis checks maxmemory only before the first write of a script: delete half a stream only if there is one.
const CLEAR = `
local function clear()
  if redis.call('EXISTS', stream, meta) > 0 then redis.call('DEL', stream, meta) end
end`;

// Fences and generations may exceed Lua's exact integers: compare by length, then as text.
const BELOW = `
local function below(a, b) return #a < #b or (#a == #b and a < b) end`;

const FLOOR = `
local function floor()
  local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  if not first then return found[2] end
  local _, oldest = split(first[1])
  -- A record of another program, which has no number yet.
  if oldest < 1 or oldest > tonumber(found[2]) then return found[2] end
  return text(oldest - 1)
end`;

// Another program may have added records, which have no number of ours. They are always at the end: an id must be above the
// last one. They are taken out, to be added again with the next numbers: `records`, not before the time `after`. Nothing can be
// added after an enormous id, so such a stream counts as missing. XLEN is cheap, and no function is made when all is well.
const FOREIGN = `
local records, after = nil, 0
if found and redis.call('XLEN', stream) ~= tonumber(found[2]) - tonumber(found[4] or 0) then
  local last, top = found[3] .. '-' .. found[2], nil
  while true do
    local some = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 100)
    for _, entry in ipairs(some) do
      local fields, size = {}, 0
      for i = 1, #entry[2], 2 do
        fields[entry[2][i]] = entry[2][i + 1]
        size = size + #entry[2][i] + #entry[2][i + 1]
      end
      records = records or {}
      records[#records + 1] = '{"foreign":' .. (size > ${MAX_FOREIGN_BYTES} and 'null' or cjson.encode(fields)) .. '}'
      redis.call('XDEL', stream, entry[1])
      top = entry[1]
    end
    if #some < 100 then break end
  end
  if top then
    local time, seq = string.match(top, '^(%d+)-(%d+)$')
    after = tonumber(time)
    if tonumber(seq) > tonumber(found[2]) then after = after + 1 end
    if after > ${MAX_TIME} then
      redis.call('DEL', stream, meta)
      found = nil
    end
  end
end`;

// Adds what FOREIGN has found. Needs TEXT, `now` and `publish`.
const NUMBER_FOREIGN = `
${FOREIGN}
if found and records then
  local seq, bytes = tonumber(found[2]), tonumber(found[5] or 0)
  local time = text(math.max(now, tonumber(found[3]), after))
  local lines = {found[1] .. ' ' .. time .. ' ' .. text(seq + 1)}
  for _, data in ipairs(records) do
    seq = seq + 1
    redis.call('XADD', stream, time .. '-' .. text(seq), 'd', data)
    bytes = bytes + #data
    lines[#lines + 1] = data
  end
  found[2], found[3] = text(seq), time
  redis.call('HSET', meta, 'seq', found[2], 'time', time, 'bytes', text(bytes))
  redis.call(publish, stream, table.concat(lines, '\\n'))
elseif not found and after > 0 then
  redis.call(publish, stream, '')
end`;

function script(...parts: readonly string[]): RedisScript {
  const lua = parts.join("\n");
  return { lua, sha: createHash("sha1").update(lua).digest("hex") };
}

/**
 * ARGV: the expected epoch or '', a new epoch, now, the TTL, the fence or '', the publish command, entries.
 * Returns {'gone'}, {'fenced'} or {epoch, seq, time, floor}.
 */
export const APPEND = script(
  TEXT,
  BELOW,
  FIND,
  CLEAR,
  `
local expected, now, ttl, fence = ARGV[1], tonumber(ARGV[3]), ARGV[4], ARGV[5]
${FOREIGN}
if expected ~= '' and not (found and found[1] == expected) then return {'gone'} end
local seen = found and found[6] or ''
if fence ~= '' and below(fence, seen) then return {'fenced'} end
if fence == '' then fence = seen end
if not found then
  clear()
  found = {ARGV[2], '0', '0', '0', '0'}
end
local epoch, seq, bytes = found[1], tonumber(found[2]), tonumber(found[5] or 0)
local time = text(math.max(now, tonumber(found[3]), after))
local lines = {epoch .. ' ' .. time .. ' ' .. text(seq + 1)}
for _, data in ipairs(records or {}) do
  seq = seq + 1
  redis.call('XADD', stream, time .. '-' .. text(seq), 'd', data)
  bytes = bytes + #data
  lines[#lines + 1] = data
end
for i = 7, #ARGV do
  seq = seq + 1
  redis.call('XADD', stream, time .. '-' .. text(seq), 'd', ARGV[i])
  bytes = bytes + #ARGV[i]
  lines[#lines + 1] = ARGV[i]
end
redis.call('HSET', meta, 'epoch', epoch, 'seq', text(seq), 'time', time, 'fence', fence, 'bytes', text(bytes))
redis.call('PEXPIRE', stream, ttl)
redis.call('PEXPIRE', meta, ttl)
redis.call(ARGV[6], stream, table.concat(lines, '\\n'))
return {epoch, text(seq), time, found[4] or '0'}
`,
);

/** ARGV: after, max entries, max bytes. Returns {} or {epoch, seq, time, floor, id, data, id, data, …}. */
export const READ = script(
  TEXT,
  SPLIT,
  FIND,
  FLOOR,
  `
if not found then return {} end
local page = {found[1], found[2], found[3], floor()}
local after, entries, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- What another program has added after it has no number yet.
local last = found[3] .. '-' .. found[2]
while entries > 0 do
  local size = math.min(entries, 64)
  local some = redis.call('XRANGE', stream, '(' .. after, last, 'COUNT', size)
  for _, entry in ipairs(some) do
    local data = entry[2][2]
    bytes = bytes - #data
    if bytes < 0 and #page > 4 then return page end
    page[#page + 1] = entry[1]
    page[#page + 1] = data
    after = entry[1]
  end
  if #some < size or bytes <= 0 then return page end
  entries = entries - size
end
return page
`,
);

/** Many streams. ARGV: now and the publish command for each. Returns {} or {epoch, seq, time, floor} for each. */
export const BOUNDS = script(
  TEXT,
  SPLIT,
  `
local heads = {}
for k = 1, #KEYS, 2 do
  local stream, meta = KEYS[k], KEYS[k + 1]
  local now, publish = tonumber(ARGV[k]), ARGV[k + 1]
  ${LOOK}
  ${NUMBER_FOREIGN}
  ${FLOOR}
  heads[#heads + 1] = found and {found[1], found[2], found[3], floor()} or {}
end
return heads
`,
);

/** ARGV: a new epoch, the TTL, the generation or '', now, the publish command. Returns {'gone'} or {epoch, seq, time, floor, '1' if the group was created}. */
export const OPEN = script(
  TEXT,
  SPLIT,
  BELOW,
  FIND,
  CLEAR,
  FLOOR,
  `
local generation, now, publish = ARGV[3], tonumber(ARGV[4]), ARGV[5]
${NUMBER_FOREIGN}
if found and generation ~= '' then
  local seen = found[7] or '0'
  if below(generation, seen) then return {'gone'} end
  if below(seen, generation) then found = nil end
end
if not found then
  clear()
  found = {ARGV[1], '0', '0'}
  if generation == '' then generation = '0' end
  redis.call('HSET', meta, 'epoch', found[1], 'seq', '0', 'time', '0', 'generation', generation)
end
local made = redis.pcall('XGROUP', 'CREATE', stream, 'ui', '$', 'MKSTREAM')
if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
-- Only an append extends the TTL.
for _, key in ipairs(KEYS) do
  if redis.call('PTTL', key) == -1 then redis.call('PEXPIRE', key, ARGV[2]) end
end
return {found[1], found[2], found[3], floor(), made.err and '0' or '1'}
`,
);

/** Many streams. ARGV: a time and a sequence each. Returns the number of pending entries of each group. */
export const BOOKMARK = script(
  TEXT,
  SPLIT,
  `
local function move(stream, time, seq)
  if redis.call('EXISTS', stream) == 0 then return 0 end
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local about = {}
    for i = 1, #group, 2 do about[group[i]] = group[i + 1] end
    if about['name'] == 'ui' then
      local atTime, atSeq = split(about['last-delivered-id'])
      if time > atTime or (time == atTime and seq > atSeq) then
        redis.call('XGROUP', 'SETID', stream, 'ui', text(time) .. '-' .. text(seq))
      end
      return about['pending']
    end
  end
  return 0
end
local pending = {}
for k = 1, #KEYS, 2 do
  pending[#pending + 1] = move(KEYS[k], tonumber(ARGV[k]), tonumber(ARGV[k + 1]))
end
return pending
`,
);

/** ARGV: since, entries, bytes, each or '', the batch size, and the last sequence to remove or ''. Returns the number removed, and 1 if there may be more. */
export const TRIM = script(
  TEXT,
  SPLIT,
  FIND,
  FLOOR,
  `
if not found then return {0, 0} end
local since, entries, bytes, upTo = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
local left, size = redis.call('XLEN', stream), tonumber(found[5] or 0)
local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', ARGV[4])
local keep = 1
while keep < #oldest do
  local time, seq = split(oldest[keep][1])
  if upTo and seq > upTo then break end
  local old = since and time < since
  if not (old or (entries and left > entries) or (bytes and size > bytes)) then break end
  left = left - 1
  size = size - #oldest[keep][2][2]
  keep = keep + 1
end
if keep == 1 then return {0, 0} end
local removed = redis.call('XTRIM', stream, 'MINID', '~', oldest[keep][1])
size = tonumber(found[5] or 0)
for i = 1, removed do size = size - #oldest[i][2][2] end
redis.call('HSET', meta, 'bytes', text(size), 'floor', floor())
return {removed, (keep == #oldest and removed > 0) and 1 or 0}
`,
);

/**
 * ARGV: the epoch, the sequence before the first entry, the TTL, the generation, and pairs of id and data, in order. Existing
 * entries are skipped. Returns the new sequence, or 'foreign' (another epoch) or 'gap' (entries are missing in between).
 */
export const ADOPT = script(
  TEXT,
  SPLIT,
  FIND,
  CLEAR,
  `
local epoch, ttl = ARGV[1], ARGV[3]
if found and found[1] ~= epoch then return {'foreign'} end
local floor = found and found[4] or ARGV[2]
if not found then
  clear()
  found = {epoch, ARGV[2], '0', floor, '0'}
end
local seq, last, bytes = tonumber(found[2]), found[3], tonumber(found[5] or 0)
for i = 5, #ARGV, 2 do
  local time, n = split(ARGV[i])
  if n > seq + 1 then return {'gap'} end
  if n == seq + 1 then
    redis.call('XADD', stream, ARGV[i], 'd', ARGV[i + 1])
    seq, last, bytes = n, text(time), bytes + #ARGV[i + 1]
  end
end
redis.call('HSET', meta, 'epoch', epoch, 'seq', text(seq), 'time', last, 'bytes', text(bytes), 'floor', floor,
  'generation', ARGV[4])
redis.call('PEXPIRE', stream, ttl)
redis.call('PEXPIRE', meta, ttl)
return {text(seq)}
`,
);

/** ARGV: the publish command, the newest generation to delete or ''. Watchers get an empty message, and read again. */
export const DELETE = script(
  BELOW,
  `
local stream, meta = KEYS[1], KEYS[2]
if ARGV[2] ~= '' and below(ARGV[2], redis.call('HGET', meta, 'generation') or '0') then return 0 end
if redis.call('DEL', stream, meta) > 0 then redis.call(ARGV[1], stream, '') end
return 0
`,
);
