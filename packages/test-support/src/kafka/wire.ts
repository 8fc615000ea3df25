import { cutter, type Wire } from "../processes/step_proxy.ts";

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

const METADATA = 3;
/** The first version in the compact form. */
const COMPACT = 9;

const NAMES = new Map<number, string>(Object.entries(KEYS).map(([name, key]) => [key, name]));

/** The suffix readers add to the name of their process. */
const OWN_ID = /-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Kafka's protocol, as far as its headers tell: the kind of request, and the process that sends it. */
export function kafkaWire(): Wire {
  const cut = () => cutter((rest) => (rest.length < 4 ? undefined : 4 + rest.readInt32BE(0)));
  const [requests, answers] = [cut(), cut()];
  return {
    requests: (chunk) =>
      requests(chunk).map((bytes) => {
        const name = NAMES.get(bytes.readInt16BE(4));
        const end = 14 + Math.max(0, bytes.readInt16BE(12));
        const client = bytes.toString("utf8", 14, end).replace(OWN_ID, "");
        return { bytes, name, id: bytes.readInt32BE(8), client, content: bytes.subarray(end) };
      }),
    answers: (chunk) => answers(chunk).map((bytes) => ({ bytes, id: bytes.readInt32BE(4) })),
  };
}

/** The same, for a broker that reports no brokers while it is `alone`, as one that its controller has given up. */
export function kafkaWireWithoutBrokers(alone: () => boolean): Wire {
  return answering({ key: METADATA, since: COMPACT }, (answer) =>
    alone() ? withoutBrokers(answer) : answer,
  );
}

/** The same, for a broker that refuses the offsets of transactions with this error, if there is one. */
export function kafkaWireRefusingOffsets(error: () => number | undefined): Wire {
  return answering({ key: KEYS.TxnOffsetCommit, since: 3 }, (answer) => {
    const code = error();
    if (code === undefined) return answer;
    const refused = Buffer.from(answer);
    refused.writeInt16BE(code, errorAt(answer));
    return refused;
  });
}

/** Changes the answers to one kind of request. */
function answering(
  { key, since }: { readonly key: number; readonly since: number },
  change: (answer: Buffer) => Buffer,
): Wire {
  const wire = kafkaWire();
  const asked = new Set<number>();
  return {
    requests(chunk) {
      const requests = wire.requests(chunk);
      for (const { bytes, id } of requests)
        if (bytes.readInt16BE(4) === key && bytes.readInt16BE(6) >= since) asked.add(id!);
      return requests;
    },
    answers: (chunk) =>
      wire
        .answers(chunk)
        .map((answer) => (asked.delete(answer.id!) ? { ...answer, bytes: change(answer.bytes) } : answer)),
  };
}

/** An answer about the cluster that lists no brokers. */
function withoutBrokers(answer: Buffer): Buffer {
  // Its size, the id, no tags and the throttle time. All lengths are one more than they say, and fit one byte.
  const brokers = 13;
  let end = brokers + 1;
  for (let left = answer[brokers]! - 1; left > 0; left--) {
    end += 4;
    end += answer[end]!;
    end += 4;
    end += Math.max(1, answer[end]!);
    end += 1;
  }
  const emptied = Buffer.concat([answer.subarray(0, brokers), Buffer.of(1), answer.subarray(end)]);
  emptied.writeInt32BE(emptied.length - 4, 0);
  return emptied;
}

/** The error in an answer, 0 for none: to an EndTxn before version 3, or to a TxnOffsetCommit of version 3. */
export function errorIn(answer: Buffer, to: "EndTxn" | "TxnOffsetCommit"): number {
  return answer.readInt16BE(to === "EndTxn" ? 12 : errorAt(answer));
}

/** The position of the first partition's error in an answer to a TxnOffsetCommit. */
function errorAt(answer: Buffer): number {
  // Its size, the id, no tags, the throttle time, the number of topics, and then the first one's name.
  const name = answer[14]! - 1;
  // The number of partitions, and the number of the first.
  return 15 + name + 1 + 4;
}
