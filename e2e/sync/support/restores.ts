import { createSyncClient, type SyncClient } from "@khala/client/sync";
import { until } from "@khala/test-support/kit/until";
import { freePort } from "@khala/test-support/processes/ports";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { expect } from "vitest";
import { memory } from "../../../packages/client/src/storage/memory.ts";

const org = "acme";

/**
 * Makes a backup while a server runs; the answer puts it back while no Khala runs. What `write` stores is to be part of what
 * is restored.
 */
export type Backup = (write: (name: string) => Promise<void>) => Promise<() => Promise<void>>;

/** Checks that after a restore a client in memory, and one with stored documents, end up equal to the server. */
export async function clientsFollowRestore(databaseUrl: string, backUp: Backup): Promise<void> {
  const settings = { KHALA_PORT: String(await freePort()), KHALA_POLL_MS: "20" };
  const start = () => startServer(databaseUrl, { settings });
  let server = await start();
  const clients: SyncClient[] = [];
  const storage = memory();
  const open = (options: { storage?: typeof storage } = {}) => {
    const { url } = server;
    const client = createSyncClient({ url, token: () => server.token({ org_id: org }), ...options });
    client.sync.subscribe(RUNS, () => {});
    clients.push(client);
    return client;
  };
  try {
    for (const name of ["kept", "changed", "deleted"]) await write(server, name, 1, "before");
    const watching = open();
    const stored = open({ storage });
    await agree(server, watching, stored);
    const kept: string[] = [];
    const restore = await backUp(async (name) => {
      await write(server, name, 1, "before");
      kept.push(`run:${name}`);
    });

    await write(server, "changed", 2, "lost");
    await write(server, "deleted", 2);
    for (let i = 0; i < 5; i++) await write(server, `lost-${i}`, 1, "lost");
    await agree(server, watching, stored);
    await stored.close();
    await server[Symbol.asyncDispose]();

    await restore();
    server = await start();
    // The counter passes all that was seen, before anybody asks.
    for (let i = 0; i < 20; i++) await write(server, `new-${i}`, 1, "after");
    await write(server, "changed", 2, "after");
    await agree(server, watching, open({ storage }));
    expect(contents(watching)).toMatchObject({ "run:changed": "after", "run:deleted": "before" });
    expect(Object.keys(contents(watching))).not.toContain("run:lost-0");
    expect(Object.keys(contents(watching))).toEqual(expect.arrayContaining(kept));

    // A restart after which nothing is missing makes nobody list.
    await server[Symbol.asyncDispose]();
    server = await start();
    await write(server, "kept", 2, "after");
    await agree(server, watching);
    expect(await server.metric("khala_sync_stale_cursors_total")).toBe(0);
  } finally {
    for (const client of clients) await client.close();
    await server[Symbol.asyncDispose]();
  }
}

async function write(server: TestServer, name: string, version: number, text?: string): Promise<void> {
  const payload = text === undefined ? {} : { payload: { text } };
  await until("it is written", () =>
    server.write({ key: `run:${name}`, version, org, ...payload }).then(
      () => true,
      () => false,
    ),
  );
}

function contents({ sync }: SyncClient): Record<string, string> {
  const { items } = sync.list(RUNS);
  return Object.fromEntries(items.map(({ key, data }) => [key, (data as { text: string }).text]));
}

async function agree(server: TestServer, ...clients: readonly SyncClient[]): Promise<void> {
  const response = await server.request(`/sync/v1/list/${RUNS}`, await server.token({ org_id: org }));
  const { documents } = (await response.json()) as {
    documents: { doc_key: string; payload: { text: string } }[];
  };
  const there = Object.fromEntries(documents.map(({ doc_key: key, payload }) => [key, payload.text]));
  for (const client of clients) {
    await until("a client is live", () => client.sync.list(RUNS).phase === "live");
    await until("a client has what the server has", () => {
      const here = contents(client);
      return (
        JSON.stringify(here, Object.keys(here).toSorted()) ===
        JSON.stringify(there, Object.keys(there).toSorted())
      );
    });
  }
}
