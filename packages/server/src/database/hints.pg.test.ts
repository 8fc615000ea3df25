import { expect, onTestFinished, test } from "vitest";
import { testContext } from "../../../../e2e/support/context.ts";
import { testDatabase } from "../../../../e2e/support/postgres.ts";
import { startTcpProxy } from "../../../../e2e/support/tcp_proxy.ts";
import { until } from "../../../../e2e/support/until.ts";
import { openDatabase } from "./database.ts";
import { openHints } from "./hints.ts";

test("stopping while the LISTEN connection is being made does not wait for hints that never come", async () => {
  await using store = await testDatabase();
  const { hostname, port } = new URL(store.url);
  await using proxy = await startTcpProxy({ host: hostname, port: Number(port) });
  const context = await testContext();
  const database = openDatabase({ url: proxy.through(store.url), poolSize: 1, log: context.log });
  onTestFinished(() => database.close());
  const hints = openHints(database, context, { enabled: true, onHint: () => {} });
  proxy.pause("answers");
  hints.start();
  await until("it connects", () => proxy.connections > 0);
  const stopped = hints.stop();
  proxy.resume();
  await expect(stopped).resolves.toBeUndefined();
});
