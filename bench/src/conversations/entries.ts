import type { EntryJson } from "@khala/contracts/conversation/v1";

const RUN = "0198c0de-0000-7000-8000-000000000001";
const MESSAGE = "0198c0de-0000-7000-8000-000000000002";
const ZERO = "0".charCodeAt(0);

/** One token as an entry of the log; its text is when it was written, in nanoseconds since the machine started. */
export function tokenEntry(): string {
  const entry: EntryJson = {
    run_id: RUN,
    event: { text_delta: { message_id: MESSAGE, text: ` ${process.hrtime.bigint()}` } },
  };
  return JSON.stringify(entry);
}

/** Milliseconds since the token in this frame or entry was written, by any process of this machine. */
export function tokenAge(data: string | Buffer): number {
  return (Number(process.hrtime.bigint()) - lastNumber(data)) / 1e6;
}

/** The last digits in a frame. */
function lastNumber(data: string | Buffer): number {
  const at = typeof data === "string" ? (i: number) => data.charCodeAt(i) : (i: number) => data[i]!;
  const digit = (i: number) => at(i) >= ZERO && at(i) <= ZERO + 9;
  let i = data.length - 1;
  while (!digit(i)) i--;
  let value = 0;
  for (let unit = 1; digit(i); i--, unit *= 10) value += (at(i) - ZERO) * unit;
  return value;
}
