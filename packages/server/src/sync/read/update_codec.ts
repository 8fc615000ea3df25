import { create, toBinary } from "@bufbuild/protobuf";
import { phoenix, SYNC_CHANNEL } from "@khala/contracts";
import { UpdateSchema } from "@khala/contracts/sync/v1";
import { stampedFrame, type WireFrame } from "../../kit/wire_frame.ts";
import type { JournalRow } from "./journal.ts";

/** The encoding of a channel. */
export type Encoding = "json" | "proto";

/** A journal row, encoded at most once per encoding, for any number of sockets. */
export interface EncodedUpdate {
  readonly row: JournalRow;
  /** Its payload was dropped because a newer version follows: it only moves the position. */
  readonly superseded: boolean;
  readonly json: string;
  readonly proto: Uint8Array;
  /** The row's audience, to look subjects up in. */
  readonly audience: ReadonlySet<string> | null;
  /** About how many bytes it takes on the wire. */
  readonly bytes: number;
  /** About how many bytes it takes in memory, once both encodings are made. */
  readonly heldBytes: number;
}

/** Prepares a row for sending. */
export function encodeUpdate(topic: string, row: JournalRow, maxPayloadBytes: number): EncodedUpdate {
  const oversize = row.payloadBytes > maxPayloadBytes;
  const superseded = row.op === "upsert" && !oversize && row.payload === null;
  let json: string | undefined;
  let proto: Uint8Array | undefined;
  let audience: ReadonlySet<string> | null | undefined;
  const payload = row.payload?.length ?? 0;
  return {
    row,
    superseded,
    bytes: payload + 300,
    // The payload three times: as read, as JSON and as protobuf. A subject is in a list and a set.
    heldBytes: 3 * (payload + 300) + 100 * ((row.audience?.length ?? 0) + (row.hiddenFrom?.length ?? 0)),
    get audience() {
      if (audience === undefined) audience = row.audience && new Set(row.audience);
      return audience;
    },
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
  if (row.payload) update.payload = new Uint8Array(Buffer.from(row.payload));
  if (row.payloadHash) update.payloadHash = row.payloadHash;
  return toBinary(UpdateSchema, update);
}

/** The end of a batch for its viewers. */
export interface Through {
  readonly epoch: string;
  readonly watermark: bigint;
  readonly replayComplete: boolean;
}

/** The rights in a cursor's epoch: always this long, so that frames differ in these characters alone. */
const RIGHTS_LENGTH = 12;

/** A batch as a frame for all viewers of the same rows: each stamps it with the fingerprint of its rights. */
export function batchFrame(
  topic: string,
  updates: readonly EncodedUpdate[],
  through: Through,
  encoding: Encoding,
): WireFrame {
  return encoding === "json" ? jsonFrame(topic, updates, through) : protoFrame(topic, updates, through);
}

function jsonFrame(topic: string, updates: readonly EncodedUpdate[], through: Through): WireFrame {
  let text = `[null,null,"${SYNC_CHANNEL}","frame",{"update_batch":{"topic":${JSON.stringify(topic)},"updates":[`;
  let first = true;
  for (const update of updates) {
    if (update.superseded) continue;
    text += first ? update.json : `,${update.json}`;
    first = false;
  }
  const after = `","watermark":"${through.watermark}"}${through.replayComplete ? ',"replay_complete":true' : ""}}}]`;
  const before = `${text}],"through":{"epoch":"${through.epoch}.`;
  return stampedFrame(Buffer.from(before), RIGHTS_LENGTH, Buffer.from(after), false);
}

// Field by field, because a generated encoder would write every update again for every viewer. Vectors hold it to the proto.
function protoFrame(topic: string, updates: readonly EncodedUpdate[], through: Through): WireFrame {
  const parts: Uint8Array[] = [field(1, Buffer.from(topic))];
  for (const update of updates) {
    if (!update.superseded) parts.push(tag(2, update.proto.length), update.proto);
  }
  const epoch = Buffer.from(`${through.epoch}.`);
  const epochHead = Buffer.concat([tag(1, epoch.length + RIGHTS_LENGTH), epoch]);
  const watermark = Buffer.from(through.watermark === 0n ? [] : [0x10, ...varint(through.watermark)]);
  const after = Buffer.concat([watermark, Buffer.from(through.replayComplete ? [0x20, 1] : [])]);
  parts.push(tag(3, epochHead.length + RIGHTS_LENGTH + watermark.length), epochHead);
  const length = parts.reduce((sum, part) => sum + part.length, 0) + RIGHTS_LENGTH + after.length;
  const head = phoenix.broadcastBinary(SYNC_CHANNEL, "frame", new Uint8Array(0));
  return stampedFrame(Buffer.concat([head, tag(1, length), ...parts]), RIGHTS_LENGTH, after, true);
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
