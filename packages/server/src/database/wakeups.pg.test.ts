import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { until } from "@khala/test-support/kit/until";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { startTcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { expect, onTestFinished, test } from "vitest";
import { openDatabase } from "./database.ts";
import { openWakeups } from "./wakeups.ts";

test("stops while it is still connecting", async () => {
  await using store = await testDatabase();
  const { hostname, port } = new URL(store.url);
  await using proxy = await startTcpProxy({ host: hostname, port: Number(port) });
  const context = await testContext();
  const database = openDatabase({ url: proxy.through(store.url), poolSize: 1, log: context.log });
  onTestFinished(() => database.close());
  const wakeups = openWakeups(database, context, { enabled: true });
  proxy.pause("answers");
  wakeups.start();
  await until("it connects", () => proxy.connections > 0);
  const stopped = wakeups.stop();
  proxy.resume();
  await expect(stopped).resolves.toBeUndefined();
});

test("listens again after losing its connection, and reports it", async () => {
  await using own = await testDatabase();
  const context = await testContext();
  const heard: string[] = [];
  let listening = 0;
  const listener = openWakeups(own.database, context, { enabled: true });
  listener.on("", (name) => heard.push(name));
  listener.onListening(() => listening++);
  const sender = openWakeups(own.database, context, { enabled: true });
  listener.start();
  try {
    await until("it listens", () => listening === 1);
    const text = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND query LIKE 'LISTEN %'`;
    expect(await own.database.query({ text })).toHaveLength(1);
    await until("it listens again", () => listening === 2);
    sender.send("news");
    await until("the wakeup", () => heard.includes("news"));
  } finally {
    await sender.stop();
    await listener.stop();
  }
});

test("sends a wakeup inside the commit when idle, and beside the commits under load", async () => {
  await using own = await testDatabase();
  const context = await testContext();
  const clock = new ManualClock();
  const heard: string[] = [];
  const listening = Promise.withResolvers<void>();
  const listener = openWakeups(own.database, context, { enabled: true });
  listener.on("", (name) => heard.push(name));
  listener.onListening(listening.resolve);
  const sender = openWakeups(own.database, { ...context, clock }, { enabled: true, everyMs: 1_000 });
  listener.start();
  await listening.promise;
  try {
    await own.database.transaction([{ text: "SELECT 1" }, sender.within("first")!]);
    await until("the first", () => heard.includes("first"));
    expect(sender.within("second")).toBeUndefined();
    sender.send("second");
    await clock.advance(1_100);
    await until("the second", () => heard.includes("second"));
    await clock.advance(8_000);
    expect(sender.within("third")).toBeUndefined();
    expect(sender.within("third", 9_000)).toBeUndefined();
    await own.database.transaction([sender.within("third", 7_000)!]);
    await until("the third", () => heard.includes("third"));
    await clock.advance(11_000);
    await own.database.transaction([sender.within("fourth")!]);
    await until("the fourth", () => heard.includes("fourth"));
    await clock.advance(15_000);
    expect(heard).toEqual(["first", "second", "third", "fourth"]);
  } finally {
    await sender.stop();
    await listener.stop();
  }
});

test("a commit that rolls back does not drop another wakeup", async () => {
  await using own = await testDatabase();
  const context = await testContext();
  const clock = new ManualClock();
  const heard: string[] = [];
  const listening = Promise.withResolvers<void>();
  const listener = openWakeups(own.database, context, { enabled: true });
  listener.on("", (name) => heard.push(name));
  listener.onListening(listening.resolve);
  const sender = openWakeups(own.database, { ...context, clock }, { enabled: true, everyMs: 1_000 });
  listener.start();
  await listening.promise;
  try {
    await own.database.transaction([sender.within("first")!]);
    sender.send("of another", 5_000);
    await clock.advance(3_000);
    const statements = [sender.within("mine", 2_000)!, { text: "SELECT 1/0" }];
    await expect(own.database.transaction(statements)).rejects.toMatchObject({ code: "22012" });
    await clock.advance(5_000);
    await until("the other one", () => heard.includes("of another"));
    expect(heard).toEqual(["first", "of another"]);
  } finally {
    await sender.stop();
    await listener.stop();
  }
});

test("calls each handler with the rest of the names that have its prefix", async () => {
  await using own = await testDatabase();
  const context = await testContext();
  const listening = Promise.withResolvers<void>();
  const heard: [string, string][] = [];
  const listener = openWakeups(own.database, context, { enabled: true });
  for (const prefix of ["log:", "", "board:"]) listener.on(prefix, (rest) => heard.push([prefix, rest]));
  listener.onListening(listening.resolve);
  const sender = openWakeups(own.database, context, { enabled: true });
  listener.start();
  await listening.promise;
  try {
    sender.send("log:chat:1");
    await until("both handlers are called", () => heard.length === 2);
    expect(heard).toEqual([
      ["log:", "chat:1"],
      ["", "log:chat:1"],
    ]);
  } finally {
    await sender.stop();
    await listener.stop();
  }
});

test("sends one wakeup at a time, and merges the names that arrive meanwhile", async () => {
  await using own = await testDatabase();
  const { hostname, port } = new URL(own.url);
  await using proxy = await startTcpProxy({ host: hostname, port: Number(port) });
  const context = await testContext();
  const database = openDatabase({ url: proxy.through(own.url), poolSize: 4, log: context.log });
  onTestFinished(() => database.close());
  const sent: string[] = [];
  const watched: typeof database = {
    ...database,
    query: (statement) => {
      sent.push(String(statement.values?.[1]).split("\n").slice(1).join(" "));
      return database.query(statement);
    },
  };
  const clock = new ManualClock();
  const wakeups = openWakeups(watched, { ...context, clock }, { enabled: true });
  proxy.pause("answers");
  wakeups.send("a");
  for (const name of ["b", "c", "b"]) {
    wakeups.send(name);
    await clock.advance(100);
  }
  expect(sent).toEqual(["a"]);
  proxy.resume();
  await until("the next one", () => sent.length === 2);
  await wakeups.stop();
  expect(sent).toEqual(["a", "b c"]);
});

test("delays a patient wakeup, and sends it with the first urgent one", async () => {
  await using own = await testDatabase();
  const context = await testContext();
  const clock = new ManualClock();
  const sent: string[] = [];
  const watched: typeof own.database = {
    ...own.database,
    query: (statement) => {
      sent.push(String(statement.values?.[1]).split("\n").slice(1).join(" "));
      return own.database.query(statement);
    },
  };
  const wakeups = openWakeups(watched, { ...context, clock }, { enabled: true, everyMs: 10 });
  wakeups.send("first");
  await until("it is sent", () => sent.length === 1);
  wakeups.send("patient", 100);
  await clock.advance(50);
  expect(sent).toEqual(["first"]);
  wakeups.send("urgent");
  await until("both are sent", () => sent.length === 2);
  wakeups.send("patient", 100);
  await clock.advance(99);
  expect(sent).toEqual(["first", "patient urgent"]);
  await clock.advance(1);
  await until("the patient one is sent", () => sent.length === 3);
  await wakeups.stop();
});
