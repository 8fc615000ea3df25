import { RUNS, type TestServer } from "../servers/servers.ts";
import { RawClient } from "./clients.ts";

/** A viewer with a socket that follows the runs from now on. */
export async function followRuns(server: TestServer, org: string, sub: string, params: object = {}) {
  const token = await server.token({ org_id: org, sub });
  const raw = await RawClient.connect(server.socketUrl, { token });
  await raw.join(params);
  const { status, response } = await raw.push("sync:v1", "subscribe", { topics: [RUNS] });
  if (status !== "ok") throw new Error(`The subscribe was refused: ${JSON.stringify(response)}`);
  return Object.assign(raw, { token });
}

/** Resolves when everything committed before has reached the sockets that should get it. */
export async function delivered(server: TestServer, ...clients: readonly RawClient[]): Promise<void> {
  await server.caughtUp(RUNS);
  for (const client of clients) await client.push("sync:v1", "heartbeat");
}
