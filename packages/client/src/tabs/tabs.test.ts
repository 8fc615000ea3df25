import { KhalaError } from "@khala/contracts";
import { expect, test } from "vitest";
import { settled } from "../connection/test_support.ts";
import { memory } from "../storage/memory.ts";
import { stored } from "../sync/test_support.ts";
import { PART_ITEMS } from "./relays.ts";
import { Browser, complete, soon } from "./test_support.ts";

test("one tab holds the connection, and all tabs show the same documents", async () => {
  using browser = new Browser();
  const { server } = browser;
  for (const key of ["a", "b"]) server.write(key);
  const first = browser.open();
  await complete(first, server);
  const others = [browser.open(), browser.open()];
  for (const tab of others) await complete(tab, server);
  for (const key of ["a", "c", "a"]) server.write(key);
  for (const tab of [first, ...others]) await complete(tab, server);
  expect(server.followers).toBe(1);
  expect([first, ...others].map((tab) => tab.role())).toEqual(["leader", "follower", "follower"]);
});

test.for(["close", "kill"] as const)(
  "when the leader is gone (%s), another tab continues from its position and misses nothing",
  async (way) => {
    using browser = new Browser();
    const { server } = browser;
    server.write("a");
    const [first, second, third] = [browser.open(), browser.open(), browser.open()];
    for (const tab of [first, second, third]) await complete(tab, server);
    first[way]();
    for (const key of ["a", "b", "c"]) server.write(key);
    for (const tab of [second, third]) await complete(tab, server);
    expect([second.role(), third.role()]).toEqual(["leader", "follower"]);
    expect(server.followers).toBe(1);
    expect(server.resumed).toEqual([undefined, 1]);
    server.write("d");
    for (const tab of [second, third]) await complete(tab, server);
  },
);

test.for([7, 8, 9, 10])(
  "tabs that come and go all show every document, and one is connected (seed %i)",
  async (start) => {
    using browser = new Browser();
    const { server } = browser;
    let seed = start;
    const upTo = (n: number) => {
      seed = (seed * 48271) % 2147483647;
      return seed % n;
    };
    const open = [browser.open()];
    for (let round = 0; round < 60; round++) {
      for (let n = upTo(4); n > 0; n--) server.write(`k${upTo(10)}`);
      if (upTo(3) === 0) open.push(browser.open());
      if (upTo(3) === 0 && open.length > 1) {
        const [gone] = open.splice(upTo(2) === 0 ? 0 : upTo(open.length), 1);
        if (upTo(2) === 0) gone!.kill();
        else gone!.close();
      }
      if (upTo(5) === 0) for (const tab of open) await complete(tab, server);
    }
    for (const tab of open) await complete(tab, server);
    expect(server.followers).toBe(1);
    expect(open.filter((tab) => tab.role() === "leader")).toHaveLength(1);
  },
);

test("sends a large topic to another tab in parts, while changes continue", async () => {
  using browser = new Browser();
  const { server } = browser;
  for (let n = 0; n < 3_000; n++) server.write(`k${n}`);
  const first = browser.open();
  await complete(first, server);
  const second = browser.open();
  for (let n = 0; n < 30; n++) {
    server.write(`k${n * 7}`);
    const parts = browser.messages.filter(({ type }) => type === "part").length;
    await soon(() =>
      expect(browser.messages.filter(({ type }) => type === "part").length).toBeGreaterThan(
        Math.min(parts, 11),
      ),
    );
  }
  await complete(second, server);
  const sizes = browser.messages.flatMap(
    ({ part }) => (part as { documents: unknown[] })?.documents.length ?? [],
  );
  expect(sizes.reduce((sum, size) => sum + size)).toBe(3_000);
  expect(Math.max(...sizes)).toBe(PART_ITEMS);
});

test("replaces a frozen leader within five seconds, and makes it a follower when it thaws", async () => {
  using browser = new Browser();
  const { server } = browser;
  server.write("a");
  const first = browser.open();
  await complete(first, server);
  const [second, third] = [browser.open({ talks: true }), browser.open({ talks: true })];
  for (const tab of [second, third]) await complete(tab, server);
  first.place.freeze();
  third.place.randomly = 0.9;
  await second.place.pass(5_000);
  expect([second.role(), second.tabs.status().state]).toEqual(["leader", "live"]);
  expect(second.events.map(({ event }) => event)).toContain("leader_replaced");
  server.write("b");
  await complete(second, server);
  await complete(third, server);
  await third.place.pass(5_000);
  expect(third.role()).toBe("follower");
  first.place.thaw();
  server.write("c");
  for (const tab of [first, second, third]) await complete(tab, server);
  expect([first.role(), second.role(), third.role()]).toEqual(["follower", "leader", "follower"]);
  expect(server.followers).toBe(1);
  for (const tab of [second, third]) await soon(() => expect(tab.conversation.state().health).toBe("live"));
});

test("a tab is stale without a leader, and a leader that answers in time stays", async () => {
  using browser = new Browser();
  const { server } = browser;
  server.write("a");
  const [first, second] = [browser.open(), browser.open({ talks: true })];
  for (const tab of [first, second]) await complete(tab, server);
  second.place.randomly = 0.999;
  first.place.freeze();
  await second.place.pass(3_200);
  expect(second.phase()).toBe("stale");
  expect(second.documents()).toEqual({ a: 1 });
  expect(second.tabs.status()).toMatchObject({
    state: "stale",
    role: "follower",
    error: { code: "unavailable" },
  });
  expect(second.conversation.state().health).not.toBe("live");
  server.write("b");
  // The change was noticed: the other requests what it may have missed.
  await soon(() => expect(browser.messages.at(-1)).toMatchObject({ type: "follow" }));
  first.place.thaw();
  await complete(second, server);
  await soon(() => expect(second.tabs.status().state).toBe("live"));
  await second.place.pass(2_000);
  expect([first.role(), second.role()]).toEqual(["leader", "follower"]);
  await soon(() => expect(second.conversation.state().health).toBe("live"));
});

test("a tab that is ahead of the new leader does not go back", async () => {
  using browser = new Browser();
  const { server } = browser;
  server.write("a");
  const [first, second, third] = [browser.open(), browser.open(), browser.open()];
  for (const tab of [first, second, third]) await complete(tab, server);
  second.place.freeze();
  server.write("a");
  await complete(third, server);
  server.slow = true;
  const crossed = browser.messages.length;
  first.kill();
  await soon(() => expect(second.role()).toBe("leader"));
  second.place.thaw();
  await soon(() => expect(browser.messages.slice(crossed).map(({ type }) => type)).toContain("current"));
  expect([second.documents(), third.documents()]).toEqual([{ a: 1 }, { a: 2 }]);
  server.write("a");
  server.slow = false;
  for (const tab of [second, third]) await complete(tab, server);
  expect(browser.messages.slice(crossed).map(({ type }) => type)).not.toContain("part");
});

test("a tab that missed a message notices the gap, and requests the missing changes", async () => {
  using browser = new Browser();
  const { server } = browser;
  server.write("a");
  const [first, second] = [browser.open(), browser.open()];
  for (const tab of [first, second]) await complete(tab, server);
  second.place.freeze();
  server.write("b");
  await complete(first, server);
  await soon(() => expect(browser.messages.at(-1)).toMatchObject({ type: "batch" }));
  await settled();
  second.place.thaw({ forgetful: true });
  server.write("c");
  await complete(second, server);
});

test("a replace in the leader replaces the topic in every tab", async () => {
  using browser = new Browser();
  const { server } = browser;
  for (const key of ["a", "b"]) server.write(key);
  const [first, second] = [browser.open(), browser.open()];
  for (const tab of [first, second]) await complete(tab, server);
  first.plane.setSource({
    follow: (_topic, sink) =>
      void sink
        .replace([stored("z", 1)], { epoch: "another", watermark: "1" })
        .then(() => sink.phase("live")),
  });
  await soon(() => expect(second.documents()).toEqual({ z: 1 }));
  await soon(() => expect(second.phase()).toBe("live"));
});

test("a forbidden topic is forbidden in every tab, with the reason", async () => {
  using browser = new Browser();
  const [first, second] = [browser.open(), browser.open()];
  await complete(second, browser.server);
  const error = new KhalaError("forbidden_topic", "You may not see this.");
  first.plane.setSource({ follow: (_topic, sink) => sink.phase("forbidden", error) });
  await soon(() =>
    expect(second.plane.list("t")).toMatchObject({ phase: "forbidden", error: { code: "forbidden_topic" } }),
  );
  expect(second.plane.list("t").error).toBeInstanceOf(KhalaError);
});

test("only the leader stores, and a new leader first stores everything it has", async () => {
  using browser = new Browser();
  const { server } = browser;
  const storages = [memory(), memory()] as const;
  server.write("a");
  const first = browser.open({ storage: storages[0] });
  await complete(first, server);
  const second = browser.open({ storage: storages[1] });
  await complete(second, server);
  expect((await storages[0].load(browser.scope, "t"))?.documents).toHaveLength(1);
  expect(await storages[1].load(browser.scope, "t")).toBeUndefined();
  first.kill();
  server.write("b");
  await complete(second, server);
  const kept = await storages[1].load(browser.scope, "t");
  expect(kept?.documents.map(({ key }) => key).sort()).toEqual(["a", "b"]);
  expect(kept?.cursor.watermark).toBe("2");
});

test("every tab shows the state of the connection, and can reconnect it", async () => {
  using browser = new Browser();
  const [first, second] = [browser.open(), browser.open()];
  await complete(second, browser.server);
  const error = new KhalaError("token_expired", "The token has expired.");
  first.connection.become({ state: "unauthorised", error });
  await soon(() =>
    expect(second.tabs.status()).toMatchObject({ state: "unauthorised", error: { code: "token_expired" } }),
  );
  const before = second.tabs.status();
  await second.place.pass(2_000);
  expect(second.tabs.status()).toBe(before);
  second.tabs.connect();
  await soon(() => expect(first.connection.connects).toBe(1));
  await soon(() => expect(second.tabs.status().state).toBe("live"));
});

test("a paused tab passes the lead on, and follows when it resumes", async () => {
  using browser = new Browser();
  const { server } = browser;
  const [first, second] = [browser.open(), browser.open()];
  for (const tab of [first, second]) await complete(tab, server);
  first.tabs.pause();
  server.write("a");
  await complete(second, server);
  expect([first.tabs.status().state, second.role(), first.documents()]).toEqual(["paused", "leader", {}]);
  first.tabs.connect();
  await complete(first, server);
  expect(first.role()).toBe("follower");
  second.tabs.pause();
  server.write("b");
  await complete(first, server);
  expect(first.role()).toBe("leader");
  expect(server.followers).toBe(1);
});

test("without the Web Locks API, each tab has its own connection", async () => {
  using browser = new Browser();
  const { server } = browser;
  server.write("a");
  const tabs = [browser.open({ locks: false }), browser.open({ locks: false })];
  for (const tab of tabs) await complete(tab, server);
  expect(tabs.map((tab) => tab.role())).toEqual(["own", "own"]);
  expect(tabs[0]!.events.map(({ event }) => event)).toContain("tabs_not_shared");
});

test("a conversation is the same in every tab, through a change of leader", async () => {
  using browser = new Browser();
  const { server } = browser;
  const first = browser.open({ talks: true });
  for (const word of ["one ", "two "]) server.say(word);
  await soon(() => expect(first.text()).toBe("one two "));
  const second = browser.open({ talks: true });
  const third = browser.open({ talks: true });
  for (const tab of [second, third]) await soon(() => expect(tab.text()).toBe("one two "));
  server.say("three ");
  for (const tab of [second, third]) await soon(() => expect(tab.text()).toBe("one two three "));
  expect(server.listeners).toBe(1);
  first.kill();
  server.say("four ");
  for (const tab of [second, third]) await soon(() => expect(tab.text()).toBe("one two three four "));
  expect(server.listeners).toBe(1);
  for (const tab of [second, third]) await soon(() => expect(tab.conversation.state().health).toBe("live"));
});

test("only the leader stores a conversation, and a new tab starts from it", async () => {
  using browser = new Browser();
  const { server } = browser;
  const [storage, none] = [memory(), memory()];
  const kept = async (where: typeof storage) =>
    JSON.stringify((await where.load(browser.scope, "conversation:c"))?.documents);
  const first = browser.open({ storage });
  const second = browser.open({ storage: none, talks: true });
  server.say("one ");
  await soon(() => expect(second.text()).toBe("one "));
  await soon(async () => {
    await first.place.pass(1_000);
    expect(await kept(storage)).toContain("one ");
  });
  expect(await kept(none)).toBeUndefined();
  // The new leader keeps its state, also without further events.
  first.close();
  await soon(async () => {
    await second.place.pass(1_000);
    expect(await kept(none)).toContain("one ");
  });
  const third = browser.open({ storage, talks: true });
  await soon(() => expect(third.text()).toBe("one "));
  server.say("two ");
  for (const tab of [second, third]) await soon(() => expect(tab.text()).toBe("one two "));
});

test("the leader unsubscribes from topics that no tab uses", async () => {
  using browser = new Browser();
  const { server } = browser;
  const [first, second] = [browser.open(), browser.open({ talks: true })];
  await complete(second, server);
  await soon(() => expect(server.listeners).toBe(1));
  second.close();
  await soon(() => expect(browser.messages.some(({ type }) => type === "bye")).toBe(true));
  await soon(async () => {
    await first.place.pass(10_000);
    expect(server.listeners).toBe(0);
  });
});
