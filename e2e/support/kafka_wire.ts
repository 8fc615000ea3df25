import { cutter, type Wire } from "./step_proxy.ts";

/** The requests that tests wait for, with their keys. */
const KEYS = {
  Produce: 0,
  SyncGroup: 14,
  AddPartitionsToTxn: 24,
  AddOffsetsToTxn: 25,
  EndTxn: 26,
  TxnOffsetCommit: 28,
} as const;

export type KafkaRequest = keyof typeof KEYS;

const NAMES = new Map<number, string>(Object.entries(KEYS).map(([name, key]) => [key, name]));

/** Kafka's protocol, as far as its headers tell: what is asked, and by which client. */
export function kafkaWire(): Wire {
  const cut = () => cutter((rest) => (rest.length < 4 ? undefined : 4 + rest.readInt32BE(0)));
  const [requests, answers] = [cut(), cut()];
  return {
    requests: (chunk) =>
      requests(chunk).map((bytes) => {
        const name = NAMES.get(bytes.readInt16BE(4));
        const end = 14 + Math.max(0, bytes.readInt16BE(12));
        const client = bytes.toString("utf8", 14, end);
        return { bytes, name, id: bytes.readInt32BE(8), client, content: bytes.subarray(end) };
      }),
    answers: (chunk) => answers(chunk).map((bytes) => ({ bytes, id: bytes.readInt32BE(4) })),
  };
}

/** The error in an answer, 0 for none: to an EndTxn before version 3, or to a TxnOffsetCommit of version 3. */
export function errorIn(answer: Buffer, to: "EndTxn" | "TxnOffsetCommit"): number {
  if (to === "EndTxn") return answer.readInt16BE(12);
  // Its size, the id, no tags, the throttle time, the number of topics, and then the first one's name.
  const name = answer[14]! - 1;
  // The number of partitions, and the number of the first.
  return answer.readInt16BE(15 + name + 1 + 4);
}
