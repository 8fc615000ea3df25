import { agent } from "@khala/server";
import { until } from "../kit/until.ts";
import { appendToRun, RUNS, startServer, type TestServer } from "../servers/servers.ts";
import { RawClient } from "./clients.ts";

/** A metric as a scrape declares it. */
export interface Metric {
  readonly name: string;
  readonly type: string;
}

/** The metrics of a server on which everything that is measured has happened: an append, a replay, a live push, a conversation, a task. */
export async function scrapeBusyServer(
  databaseUrl: string,
): Promise<{ readonly text: string; readonly metrics: readonly Metric[] }> {
  const types = ["Measured", "Weighed"];
  const agents = [
    agent("measured", { consumes: "Measured", run() {} }),
    agent("joined", { consumes: types, join: { types, within: 60_000 }, run() {} }),
  ];
  await using server = await startServer(databaseUrl, { agents });
  const token = await server.token();
  await using client = await RawClient.connect(server.socketUrl, { token });
  await client.join();
  await client.subscribe(RUNS, { [RUNS]: { watermark: "0" } });
  await client.frame("the end of the replay", (frame) => frame.update_batch?.replay_complete);
  await appendToRun(server, token, "measured", { type: "run.started" });
  await client.frame("the live update", (frame) => frame.update_batch?.updates?.length);
  await talk(server);
  await work(server);
  const text = await (await server.request("/metrics")).text();
  const declared = text.matchAll(/^# TYPE (\w+) (\w+)$/gm);
  return { text, metrics: [...declared].map(([, name, type]) => ({ name: name!, type: type! })) };
}

async function talk(server: TestServer): Promise<void> {
  const token = await server.token({ scopes: ["chat"] });
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ conv_id: "measured", message: "Hello" });
  await server.request("/chat", token, { method: "POST", headers, body });
  await until("the end of the run", async () => {
    const state = await server.request("/chat/measured", token);
    return !((await state.json()) as { run?: unknown }).run;
  });
}

async function work(server: TestServer): Promise<void> {
  const token = await server.token({ scopes: ["blackboard:write"] });
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ type: "Measured", payload: null });
  await server.request("/blackboard/v1/artifacts", token, { method: "POST", headers, body });
  await until("the end of the task", () => server.metric("khala_board_tasks_total", { outcome: "done" }));
}
