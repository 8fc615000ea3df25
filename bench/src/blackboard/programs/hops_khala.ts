import { once } from "node:events";
import { Agent as HttpAgent, request } from "node:http";
import { setTimeout } from "node:timers/promises";
import { agent, createKhala, defineApp, readConfig } from "@khala/server";
import { AUTH_SECRETS, mintOrgTokens } from "../../sync/tokens.ts";
import { CALL } from "../bench.ts";
import { AT_A_TIME, AWAITS_MS, FAN, type HopsWhere, itemOf, ORGS, type Shape } from "../hops.ts";
import { type Progress, serveQueue } from "../queue.ts";

const numbered = (type: string) => Array.from({ length: FAN }, (_, i) => `${type}${i}`);
const PARTS = numbered("Part");
const DONE = numbered("Done");

/** The agents of each shape, as an app has them. The last one counts. */
const AGENTS: Readonly<Record<Shape, (progress: Progress) => ReturnType<typeof agent>[]>> = {
  single: (progress) => [agent("only", { consumes: "A", concurrency: AT_A_TIME, run: () => ends(progress) })],
  pipeline: (progress) => inARow(progress, false),
  waiting: (progress) => inARow(progress, true),
  fanout: (progress) => [
    agent("splits", {
      consumes: "A",
      concurrency: AT_A_TIME,
      run({ artifact: { payload, correlation_id } }) {
        progress.ran(1);
        return PARTS.map((type, i) => ({ type, payload, partition_key: `${correlation_id}-${i}` }));
      },
    }),
    agent("works", {
      consumes: PARTS,
      concurrency: AT_A_TIME,
      run({ artifact: { type, payload, partition_key } }) {
        progress.ran(1);
        const key = partition_key !== undefined && { partition_key };
        return { type: type.replace("Part", "Done"), payload, ...key };
      },
    }),
    agent("joins", {
      consumes: DONE,
      concurrency: AT_A_TIME,
      join: { by: "correlation_id", types: DONE, within: 600_000 },
      run: () => ends(progress),
    }),
  ],
};

function ends({ ran, settled }: Progress): void {
  ran(1);
  settled(1);
}

function inARow(progress: Progress, waits: boolean) {
  const next = (name: string, consumes: string, type?: string) =>
    agent(name, {
      consumes,
      concurrency: AT_A_TIME,
      async run({ artifact: { payload, partition_key } }) {
        if (waits) await setTimeout(AWAITS_MS);
        if (!type) return ends(progress);
        progress.ran(1);
        return { type, payload, ...(partition_key !== undefined && { partition_key }) };
      },
    });
  return [next("first", "A", "B"), next("second", "B", "C"), next("third", "C")];
}

serveQueue<HopsWhere>({
  /** Somebody outside, over HTTP. */
  async publisher({ port, shape }) {
    const tokens = await mintOrgTokens(ORGS, "blackboard:write");
    const http = new HttpAgent({ keepAlive: true, maxSockets: CALL.atOnce });
    return {
      async put(payloads) {
        const items = payloads.map(itemOf);
        const artifacts = items.map(({ correlation, key, text }) => ({
          type: "A",
          payload: { text },
          ...(shape !== "single" && { correlation_id: correlation, partition_key: key }),
        }));
        await post(http, port, tokens.get(items[0]!.org)!, JSON.stringify({ artifacts }));
      },
      async close() {
        http.destroy();
      },
    };
  },

  /** The whole server. */
  async worker({ url, port, shape }, progress) {
    const agents = AGENTS[shape](progress);
    const config = readConfig({
      DATABASE_URL: url,
      KHALA_PORT: String(port),
      KHALA_LOG_LEVEL: "error",
      KHALA_AUTH_SECRETS: AUTH_SECRETS,
      KHALA_BOARD_CONCURRENCY: String(AT_A_TIME * agents.length),
    });
    const khala = await createKhala(defineApp({ models: [], agents }), { config });
    return { close: () => khala.stop() };
  },
});

async function post(agent: HttpAgent, port: number, token: string, body: string): Promise<void> {
  const headers = {
    authorization: `Bearer ${token}`,
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
  };
  const sent = request({
    agent,
    port,
    host: "127.0.0.1",
    path: "/blackboard/v1/artifacts",
    method: "POST",
    headers,
  });
  sent.end(body);
  const [response] = await once(sent, "response");
  const text = Buffer.concat(await response.toArray()).toString();
  if (response.statusCode !== 201)
    throw new Error(`Publishing was answered with ${response.statusCode}: ${text}`);
}
