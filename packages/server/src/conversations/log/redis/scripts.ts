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
  return text(oldest - 1)
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
if expected ~= '' and not (found and found[1] == expected) then return {'gone'} end
local seen = found and found[6] or ''
if fence ~= '' and below(fence, seen) then return {'fenced'} end
if fence == '' then fence = seen end
if not found then
  clear()
  found = {ARGV[2], '0', '0', '0', '0'}
end
local epoch, seq, bytes = found[1], tonumber(found[2]), tonumber(found[5] or 0)
local time = text(math.max(now, tonumber(found[3])))
local lines = {epoch .. ' ' .. time .. ' ' .. text(seq + 1)}
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
while entries > 0 do
  local size = math.min(entries, 64)
  local some = redis.call('XRANGE', stream, '(' .. after, '+', 'COUNT', size)
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

/** Many streams. Returns {} or {epoch, seq, time, floor} for each. */
export const BOUNDS = script(
  TEXT,
  SPLIT,
  `
local heads = {}
for k = 1, #KEYS, 2 do
  local stream, meta = KEYS[k], KEYS[k + 1]
  ${LOOK}
  ${FLOOR}
  heads[#heads + 1] = found and {found[1], found[2], found[3], floor()} or {}
end
return heads
`,
);

/** ARGV: a new epoch, the TTL, the generation or ''. Returns {'gone'} or {epoch, seq, time, floor, '1' if the group was created}. */
export const OPEN = script(
  TEXT,
  SPLIT,
  BELOW,
  FIND,
  CLEAR,
  FLOOR,
  `
local generation = ARGV[3]
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
local looked = redis.call('XRANGE', stream, '-', '+', 'COUNT', ARGV[4])
local keep = 1
while keep < #looked do
  local time, seq = split(looked[keep][1])
  if upTo and seq > upTo then break end
  local old = since and time < since
  if not (old or (entries and left > entries) or (bytes and size > bytes)) then break end
  left = left - 1
  size = size - #looked[keep][2][2]
  keep = keep + 1
end
if keep == 1 then return {0, 0} end
local removed = redis.call('XTRIM', stream, 'MINID', '~', looked[keep][1])
size = tonumber(found[5] or 0)
for i = 1, removed do size = size - #looked[i][2][2] end
redis.call('HSET', meta, 'bytes', text(size), 'floor', floor())
return {removed, (keep == #looked and removed > 0) and 1 or 0}
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
