import { KhalaError } from "@khala/contracts";
import { expect, test } from "vitest";
import { UNUSED_MS } from "../connection/connection.ts";
import { type FakeSocket, settled, testConnection } from "../connection/test_support.ts";
import type { Answer, Http, RequestOptions } from "../http.ts";
import { memory } from "../storage/memory.ts";
import type { Cursor, StoredDocument } from "../storage/storage.ts";
import { MAX_PENDING } from "./followed_topic.ts";
import { socketSource } from "./socket_source.ts";
import type { TopicPhase, TopicSink, Update } from "./source.ts";
import { openSync } from "./sync_plane.ts";
import { answer, at, update } from "./test_support.ts";

/** A sink that keeps what it is given. */
class HandSink implements TopicSink {
  readonly phases: (TopicPhase | [TopicPhase, string])[] = [];
  readonly done: unknown[] = [];
  cursor: Cursor | undefined;

  position(): Cursor | undefined {
    return this.cursor;
  }

  async replace(documents: readonly StoredDocument[], cursor: Cursor): Promise<void> {
    this.done.push({ replace: documents.map(({ key, version }) => `${key}@${version}`) });
    this.cursor = cursor;
  }

  async apply(updates: readonly Update[], through: Cursor): Promise<void> {
    this.done.push({ apply: updates.map(({ doc_key, doc_version }) => `${doc_key}@${doc_version}`) });
    this.cursor = through;
  }

  phase(phase: TopicPhase, error?: KhalaError): void {
    this.phases.push(error ? [phase, error.code] : phase);
  }
}

/** A source on a connection whose server a test plays. */
async function handSource({ cursor }: { cursor?: Cursor } = {}) {
  const hand = testConnection();
  const asked: { path: string; options: RequestOptions; settle: PromiseWithResolvers<Answer> }[] = [];
  const http: Http = {
    request(_method, path, options = {}) {
      const settle = Promise.withResolvers<Answer>();
      asked.push({ path, options, settle });
      return settle.promise;
    },
  };
  const source = socketSource({ connection: hand.connection, http, environment: hand.place });
  const sink = new HandSink();
  sink.cursor = cursor;
  const following = new AbortController();
  source.follow("t", sink, following.signal);
  const joined = async (): Promise<FakeSocket> => {
    await settled();
    hand.place.socket.onopen?.();
    hand.place.socket.reply(hand.place.socket.last("phx_join"));
    await settled();
    return hand.place.socket;
  };
  return { ...hand, source, sink, asked, following, joined };
}

const batch = (updates: readonly Update[], through: Cursor, complete = false) => ({
  update_batch: { topic: "t", updates, through, replay_complete: complete },
});
const stale = { error: { code: "stale_cursor", message: "old", topics: [{ topic: "t" }] } };
const page = (keys: readonly string[], cursor: Cursor, next: string | null = null) =>
  answer({ documents: keys.map((key) => ({ doc_key: key, doc_version: "1", payload: {} })), cursor, next });

test("reports the number of changes still to come during a replay", async () => {
  const { connection, joined } = await handSource({ cursor: at(5) });
  const socket = await joined();
  expect(connection.status()).not.toHaveProperty("behind");
  socket.reply(socket.last("subscribe"), { current_watermarks: { t: at(2_005) } });
  await settled();
  expect(connection.status()).toMatchObject({ state: "replaying", behind: 2_000 });
  socket.push("sync:v1", "frame", batch([update("a", 1)], at(1_005)));
  await settled();
  expect(connection.status()).toMatchObject({ state: "replaying", behind: 1_000 });
  socket.push("sync:v1", "frame", batch([], at(2_006), true));
  await settled();
  expect(connection.status().state).toBe("live");
  expect(connection.status()).not.toHaveProperty("behind");
});

test("resumes from its position, and applies frames only from the reply on", async () => {
  const { connection, sink, joined, asked } = await handSource({ cursor: at(5) });
  const socket = await joined();
  const subscribe = socket.last("subscribe");
  expect(subscribe.payload).toEqual({ topics: ["t"], resume_after: { t: at(5) } });
  expect(connection.status().state).toBe("replaying");
  socket.push("sync:v1", "frame", batch([update("old", 9)], at(99)));
  socket.reply(subscribe, {});
  socket.push("sync:v1", "frame", batch([update("a", 1)], at(6)));
  socket.push("sync:v1", "frame", batch([], at(7), true));
  await settled();
  expect(sink.done).toEqual([{ apply: ["a@1"] }, { apply: [] }]);
  expect(sink.phases.at(-1)).toBe("live");
  expect(connection.status().state).toBe("live");
  expect(sink.cursor).toEqual(at(7));
  socket.push("sync:v1", "frame", { heartbeat: { watermarks: { t: at(30), other: at(1) } } });
  await settled();
  expect(sink.cursor).toEqual(at(30));
  expect(asked).toEqual([]);
});

test("without a position, lists all pages and follows from the first page's cursor", async () => {
  const { sink, joined, asked } = await handSource();
  const socket = await joined();
  expect(sink.phases).toEqual(["loading"]);
  asked[0]!.settle.resolve(page(["a"], at(5), "more"));
  await settled();
  expect(asked[1]).toMatchObject({ path: "/sync/v1/list/t", options: { query: { after: "more" } } });
  asked[1]!.settle.resolve(page(["b"], at(9)));
  await settled();
  expect(sink.done).toEqual([{ replace: ["a@1", "b@1"] }]);
  expect(socket.last("subscribe").payload).toEqual({ topics: ["t"], resume_after: { t: at(5) } });
});

test("does not mix pages of two epochs", async () => {
  const { sink, joined, asked } = await handSource();
  await joined();
  asked[0]!.settle.resolve(page(["a"], at(5), "more"));
  await settled();
  asked[1]!.settle.resolve(page(["b"], at(2, "restored")));
  await settled();
  expect(asked[2]!.options.query).toEqual({ limit: 1_000, after: undefined });
  asked[2]!.settle.resolve(page(["c"], at(2, "restored")));
  await settled();
  expect(sink.done).toEqual([{ replace: ["c@1"] }]);
});

test("lists again at once for a stale position, and with growing delays if it stays stale", async () => {
  const { place, connection, sink, joined, asked } = await handSource({ cursor: at(5) });
  const socket = await joined();
  const subscribed = () => socket.sent.filter(({ event }) => event === "subscribe");
  socket.reply(subscribed()[0]!, {});
  socket.push("sync:v1", "frame", stale);
  await settled();
  expect(connection.status().state).toBe("stale");
  expect(sink.phases.at(-1)).toBe("stale");
  asked[0]!.settle.resolve(page(["a"], at(8)));
  await settled();
  socket.reply(subscribed()[1]!, {});
  socket.push("sync:v1", "frame", stale);
  await settled();
  expect(asked).toHaveLength(1);
  await place.pass(1_000);
  expect(asked).toHaveLength(2);
});

test("reports a disconnect, and resumes from the sink's position", async () => {
  const { place, sink, joined } = await handSource({ cursor: at(5) });
  const socket = await joined();
  socket.reply(socket.last("subscribe"), {});
  socket.push("sync:v1", "frame", batch([update("a", 1)], at(6), true));
  await settled();
  socket.end();
  expect(sink.phases.at(-1)).toEqual(["offline", "unavailable"]);
  await place.pass(500);
  const again = await joined();
  expect(again.last("subscribe").payload).toEqual({ topics: ["t"], resume_after: { t: at(6) } });
});

test("retries a failed list, and a forbidden one only with a new token", async () => {
  const { place, source, sink, joined, asked, connection } = await handSource();
  await joined();
  asked[0]!.settle.reject(new KhalaError("unavailable", "later"));
  await settled();
  expect(sink.phases.at(-1)).toEqual(["offline", "unavailable"]);
  await place.pass(500);
  asked[1]!.settle.reject(new KhalaError("forbidden_topic", "no"));
  await settled();
  expect(sink.phases.at(-1)).toEqual(["forbidden", "forbidden_topic"]);
  expect(connection.status().state).toBe("live");
  await place.pass(20_000);
  expect(asked).toHaveLength(2);
  source.retryForbidden();
  await place.pass(1_000);
  expect(asked).toHaveLength(3);
});

test("unsubscribes, drops late frames, and lets the socket close", async () => {
  const { place, sink, joined, following, connection } = await handSource({ cursor: at(5) });
  const socket = await joined();
  socket.reply(socket.last("subscribe"), {});
  following.abort();
  // It was the last one: the channel is left, and the connection closes the socket a while later.
  expect(socket.last("phx_leave").topic).toBe("sync:v1");
  socket.push("sync:v1", "frame", batch([update("a", 1)], at(6)));
  await settled();
  expect(sink.done).toEqual([]);
  expect(connection.status().state).toBe("live");
  await place.pass(UNUSED_MS);
  expect([socket.closed, connection.status().state]).toEqual([true, "idle"]);
});

test("reports a token refused twice to each topic", async () => {
  const { place, connection, sink } = await handSource({ cursor: at(5) });
  await settled();
  for (const code of ["token_revoked", "token_revoked"]) {
    place.socket.onopen?.();
    place.socket.end(4401, code);
    await place.pass(1_000);
  }
  expect(connection.status().state).toBe("unauthorised");
  expect(sink.phases.at(-1)).toEqual(["forbidden", "token_revoked"]);
});

test("bounds the waiting batches while the storage hangs, and resumes from the stored position", async () => {
  const { place, connection, source, sink, following } = await handSource({ cursor: at(5) });
  following.abort();
  expect(sink.done).toEqual([]);
  const storage = memory();
  let hangs: PromiseWithResolvers<void> | undefined;
  await storage.commit("s", "t", { replace: true, put: [], remove: [], cursor: at(5) });
  const plane = openSync({
    environment: place,
    http: { request: () => Promise.reject(new KhalaError("internal", "Nothing is to be listed.")) },
    storage: {
      ...storage,
      async commit(...change) {
        await hangs?.promise;
        return storage.commit(...change);
      },
    },
    log: () => {},
  });
  plane.setScope("s");
  plane.setSource(source);
  plane.subscribe("t", () => {});
  await settled();
  place.socket.onopen?.();
  const socket = place.socket;
  socket.reply(socket.last("phx_join"));
  await settled();
  socket.reply(socket.last("subscribe"), {});
  const large = "x".repeat(MAX_PENDING / 10);
  const send = (n: number) =>
    socket.push("sync:v1", "frame", batch([update(`k${n}`, 1, { large })], at(5 + n), true));
  const events = (name: string) => socket.sent.filter(({ event }) => event === name);

  hangs = Promise.withResolvers();
  for (let n = 1; n <= 30; n++) send(n);
  await settled();
  expect(events("unsubscribe").map(({ payload }) => payload)).toEqual([{ topics: ["t"] }]);
  expect(events("subscribe")).toHaveLength(1);
  expect(plane.list("t").phase).toBe("replaying");
  expect(connection.status().state).toBe("replaying");

  hangs.resolve();
  await settled();
  // Accepted batches are stored, and it continues from there: the first one, and the bounded queue behind it.
  const { cursor } = (await storage.load("s", "t"))!;
  const reached = Number(cursor.watermark) - 5;
  expect(reached).toBeGreaterThan(5);
  expect(reached).toBeLessThan(12);
  expect(socket.last("subscribe").payload).toEqual({ topics: ["t"], resume_after: { t: cursor } });
  const shown = () => [plane.list("t").phase, plane.list("t").items.length];
  expect(shown()).toEqual(["replaying", reached]);
  // A frame of the earlier subscription, which no longer counts.
  send(31);
  socket.reply(socket.last("subscribe"), {});
  for (let n = reached + 1; n <= 30; n++) {
    send(n);
    await settled();
  }
  expect(shown()).toEqual(["live", 30]);
  expect((await storage.load("s", "t"))?.cursor).toEqual(at(35));
});

test("many small waiting batches do not restart the subscription", async () => {
  const { sink, joined } = await handSource({ cursor: at(5) });
  const socket = await joined();
  socket.reply(socket.last("subscribe"), {});
  const hangs = Promise.withResolvers<void>();
  const apply = sink.apply.bind(sink);
  sink.apply = async (...change) => {
    await hangs.promise;
    return apply(...change);
  };
  for (let n = 1; n <= 2_000; n++)
    socket.push("sync:v1", "frame", batch([update(`k${n}`, 1)], at(5 + n), true));
  hangs.resolve();
  await settled();
  expect(sink.cursor).toEqual(at(2_005));
  expect(sink.done).toHaveLength(2);
  expect(socket.sent.filter(({ event }) => event === "subscribe")).toHaveLength(1);
});

test("a reconnect during a replace waits for it, and resumes from its cursor", async () => {
  const { place, sink, asked, joined } = await handSource();
  await joined();
  const taken = Promise.withResolvers<void>();
  const replace = sink.replace.bind(sink);
  sink.replace = async (...all) => {
    await taken.promise;
    return replace(...all);
  };
  asked[0]!.settle.resolve(page(["a"], at(8)));
  await settled();
  place.socket.end();
  await place.pass(500);
  const again = await joined();
  expect(again.sent.filter(({ event }) => event === "subscribe")).toEqual([]);
  taken.resolve();
  await settled();
  expect(asked).toHaveLength(1);
  expect(again.last("subscribe").payload).toEqual({ topics: ["t"], resume_after: { t: at(8) } });
});
