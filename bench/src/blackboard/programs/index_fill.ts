import { openKafkaClient } from "../../../../packages/kafka/src/client/client.ts";
import { byIdRecord } from "../../../../packages/kafka/src/topics/records.ts";
import { systemClock } from "../../../../packages/server/src/kit/clock.ts";
import { uuidv7 } from "../../../../packages/server/src/kit/ids.ts";
import { serve } from "../../kit/program.ts";
import { payload } from "../bench.ts";

const BATCH = 5_000;
const newId = uuidv7(systemClock);

const methods = {
  /** Writes artifacts to the index, as if they had been published long ago, and returns the id of the last one. */
  async fill({
    bootstrap,
    topic,
    count,
  }: {
    bootstrap: string;
    topic: string;
    count: number;
  }): Promise<string> {
    const client = await openKafkaClient({ bootstrap, clientId: "bench-fill" });
    const producer = client.producer({
      properties: { "linger.ms": 20, "batch.size": 1 << 20, "queue.buffering.max.messages": 200_000 },
    });
    await producer.connect();
    const created = new Date().toISOString();
    let id = "";
    const sending = new Set<Promise<unknown>>();
    for (let from = 0; from < count; from += BATCH) {
      const messages = Array.from({ length: Math.min(BATCH, count - from) }, (_, i) => {
        id = newId();
        return byIdRecord({
          id,
          type: "Finding",
          payload: payload(from + i),
          tags: [],
          produced_by: "user:publisher",
          visibility: { kind: "org" },
          version: 1,
          created_at: created,
          org_id: "bench",
          depth: 0,
        });
      });
      const sent = producer.send({ topic, messages });
      sending.add(sent);
      void sent.then(() => sending.delete(sent));
      if (sending.size >= 4) await Promise.race(sending);
    }
    await Promise.all(sending);
    await producer.disconnect();
    return id;
  },
};

/** What this program can be asked. */
export type IndexFill = typeof methods;

serve(methods);
