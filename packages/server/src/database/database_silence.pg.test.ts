import { testContext } from "@khala/test-support/kit/context";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { startTcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { expect, onTestFinished, test, vi } from "vitest";
import { openDatabase } from "./database.ts";

test("recovers from a server that stops answering", async () => {
  await using store = await testDatabase();
  const { hostname, port } = new URL(store.url);
  await using proxy = await startTcpProxy({ host: hostname, port: Number(port) });
  const { log } = await testContext();
  const url = proxy.through(store.url);
  const database = openDatabase({ url, poolSize: 2, log, connectTimeoutMs: 300, answerTimeoutMs: 300 });
  onTestFinished(() => database.close());
  const one = { text: "SELECT 1 AS one" };
  // A busy machine may itself be silent for that long.
  const answers = () => vi.waitFor(() => database.query(one), 30_000);
  await expect(answers()).resolves.toEqual([{ one: 1 }]);
  // As on a dead network link: the connections stay open, and nothing gets through.
  proxy.pause();
  await expect(database.query(one)).rejects.toMatchObject({ code: "unavailable" });
  await expect(database.transaction([one, one])).rejects.toMatchObject({ code: "unavailable" });
  await expect(database.interactive((tx) => tx.query(one))).rejects.toMatchObject({ code: "unavailable" });
  proxy.resume();
  await expect(answers()).resolves.toEqual([{ one: 1 }]);
});
