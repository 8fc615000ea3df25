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

test("a hint that is due rides in the next commit, with all that wait; one that is not due follows by itself", async () => {
  await using own = await testDatabase();
  const context = await testContext();
  const heard: string[] = [];
  const listening = Promise.withResolvers<void>();
  const listener = openHints(own.database, context, {
    enabled: true,
    onHint: (name) => heard.push(name),
    onListening: () => listening.resolve(),
  });
  const sender = openHints(own.database, context, { enabled: true, onHint: () => {}, everyMs: 50 });
  listener.start();
  await listening.promise;
  try {
    const riding = sender.within("first")!;
    await own.database.transaction([{ text: "SELECT 1" }, riding]);
    await until("the first", () => heard.includes("first"));
    expect(sender.within("second")).toBeUndefined();
    sender.send("second");
    await until("the second", () => heard.includes("second"));
    sender.send("third");
    const next = await until("the next that is due", () => sender.within("fourth"));
    await own.database.transaction([next]);
    await until("both", () => heard.includes("third") && heard.includes("fourth"));
    expect(heard.toSorted()).toEqual(["first", "fourth", "second", "third"]);
  } finally {
    await sender.stop();
    await listener.stop();
  }
});
