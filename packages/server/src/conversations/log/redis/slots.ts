import type { RedisAddress } from "./url.ts";

/** How many slots a cluster divides keys into. */
export const SLOTS = 16_384;

const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc;
});

/** The slot of a key without braces: its CRC16 (XMODEM), as the cluster specification says. */
export function slotOf(key: string): number {
  let crc = 0;
  for (const byte of Buffer.from(key)) crc = ((crc << 8) ^ TABLE[((crc >> 8) ^ byte) & 0xff]!) & 0xffff;
  return crc % SLOTS;
}

/** Slots that one server has. */
export interface SlotRange {
  readonly first: number;
  readonly last: number;
  readonly owner: RedisAddress;
}

/** Reads the answer to CLUSTER SLOTS. A server that does not know its own name means the one that was asked. */
export function parseSlots(answer: unknown, asked: RedisAddress): SlotRange[] {
  return (answer as [number, number, [string | null, number]][]).map(([first, last, [host, port]]) => ({
    first,
    last,
    owner: { host: host || asked.host, port },
  }));
}
