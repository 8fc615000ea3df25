import { create, toBinary } from "@bufbuild/protobuf";
import { phoenix, SYNC_CHANNEL } from "@khala/contracts";
import { UpdateSchema } from "@khala/contracts/sync/v1";
import type { JournalRow } from "./journal.ts";

/** How a channel encodes what it sends. */
export type Encoding = "json" | "proto";

/** A journal row, encoded at most once per encoding, however many sockets it goes to. */
export interface EncodedUpdate {
  readonly row: JournalRow;
  /** Its payload is gone because a newer version is on its way: it only moves the position. */
  readonly superseded: boolean;
  readonly json: string;
  readonly proto: Uint8Array;
  /** About how many bytes it takes on the wire and in memory. */
  readonly bytes: number;
}

/** Prepares a row for sending. */
export function encodeUpdate(topic: string, row: JournalRow, maxPayloadBytes: number): EncodedUpdate {
  const oversize = row.payloadBytes > maxPayloadBytes;
  const superseded = row.op === "upsert" && !oversize && row.payload === null;
  let json: string | undefined;
  let proto: Uint8Array | undefined;
  return {
    row,
    superseded,
    bytes: (row.payload?.length ?? 0) + 300,
    get json() {
      json ??= updateJson(topic, row, oversize);
      return json;
    },
    get proto() {
      proto ??= updateProto(topic, row, oversize);
      return proto;
    },
  };
}

function updateJson(topic: string, row: JournalRow, oversize: boolean): string {
  const head = `{"topic":${JSON.stringify(topic)},"doc_key":${JSON.stringify(row.docKey)},"doc_version":"${row.docVersion}","op":"${row.op}"`;
  const payload = row.payload ? `,"payload":${row.payload}` : "";
  const hash = row.payloadHash ? `,"payload_hash":"${row.payloadHash}"` : "";
  return `${head}${payload}${hash},"watermark":"${row.watermark}"${oversize ? ',"fetch_required":true' : ""}}`;
}

function updateProto(topic: string, row: JournalRow, oversize: boolean): Uint8Array {
  const update = create(UpdateSchema, {
    topic,
    docKey: row.docKey,
    docVersion: row.docVersion,
    op: row.op,
    watermark: row.watermark,
    fetchRequired: oversize,
  });
  if (row.payload) update.payload = new Uint8Array(row.payload);
  if (row.payloadHash) update.payloadHash = row.payloadHash;
  return toBinary(UpdateSchema, update);
}

/** A frame in two parts: what all viewers of the same rows share, and what names this viewer's rights. */
export interface Frame {
  readonly shared: Buffer;
  readonly own: Buffer;
  readonly binary: boolean;
}

/** Where a batch ends for its viewers. */
export interface Through {
  readonly epoch: string;
  readonly watermark: bigint;
  readonly replayComplete: boolean;
}

/** The rights in a cursor's epoch: always this long, so that frames differ in these characters alone. */
export const RIGHTS_LENGTH = 12;

/** The part of a batch's frame that all of its viewers share. */
export function sharedBatch(
  topic: string,
  updates: readonly EncodedUpdate[],
  through: Through,
  encoding: Encoding,
): Buffer {
  return encoding === "json" ? sharedJson(topic, updates, through) : sharedProto(topic, updates, through);
}

/** The part of a batch's frame that is this viewer's own. */
export function ownBatch(rights: string, through: Through, encoding: Encoding): Buffer {
  return encoding === "json" ? ownJson(rights, through) : ownProto(rights, through);
}

function sharedJson(topic: string, updates: readonly EncodedUpdate[], through: Through): Buffer {
  let text = `[null,null,"${SYNC_CHANNEL}","frame",{"update_batch":{"topic":${JSON.stringify(topic)},"updates":[`;
  let first = true;
  for (const update of updates) {
    if (update.superseded) continue;
    text += first ? update.json : `,${update.json}`;
    first = false;
  }
  return Buffer.from(`${text}],"through":{"epoch":"${through.epoch}.`);
}

function ownJson(rights: string, through: Through): Buffer {
  return Buffer.from(
    `${rights}","watermark":"${through.watermark}"}${through.replayComplete ? ',"replay_complete":true' : ""}}}]`,
  );
}

// Field by field, because a generated encoder would write every update again for every viewer. Vectors hold it to the proto.
function sharedProto(topic: string, updates: readonly EncodedUpdate[], through: Through): Buffer {
  const parts: Uint8Array[] = [field(1, Buffer.from(topic))];
  for (const update of updates) {
    if (!update.superseded) parts.push(tag(2, update.proto.length), update.proto);
  }
  const epochLength = Buffer.byteLength(through.epoch) + 1 + RIGHTS_LENGTH;
  const rest = ownProto("x".repeat(RIGHTS_LENGTH), through);
  const epochHead = Buffer.concat([tag(1, epochLength), Buffer.from(`${through.epoch}.`)]);
  const cursorLength = epochHead.length + rest.length - (through.replayComplete ? 2 : 0);
  parts.push(tag(3, cursorLength), epochHead);
  const length = parts.reduce((sum, part) => sum + part.length, 0) + rest.length;
  return Buffer.concat([
    phoenix.broadcastBinary(SYNC_CHANNEL, "frame", new Uint8Array(0)),
    tag(1, length),
    ...parts,
  ]);
}

function ownProto(rights: string, through: Through): Buffer {
  const watermark = through.watermark === 0n ? [] : [0x10, ...varint(through.watermark)];
  return Buffer.concat([
    Buffer.from(rights),
    Buffer.from(watermark),
    Buffer.from(through.replayComplete ? [0x20, 1] : []),
  ]);
}

function tag(number: number, length: number): Buffer {
  return Buffer.from([(number << 3) | 2, ...varint(BigInt(length))]);
}

function field(number: number, bytes: Uint8Array): Buffer {
  return Buffer.concat([tag(number, bytes.length), bytes]);
}

function varint(value: bigint): number[] {
  const bytes: number[] = [];
  let rest = value;
  for (; rest > 0x7fn; rest >>= 7n) bytes.push(Number(rest & 0x7fn) | 0x80);
  bytes.push(Number(rest));
  return bytes;
}
