import { randomBytes, randomUUID } from "node:crypto";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { type } from "arktype";
import { afterAll, beforeAll, describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import type { EngineFactory, Turn } from "../engines/engine.ts";
import { engineOf, eventsOf, Servers, type TestServer } from "../test_support.ts";
import { defineEngine } from "./params.ts";

let servers: Servers;
beforeAll(async () => {
  servers = await Servers.open();
});
afterAll(() => servers[Symbol.asyncDispose]());

const ada = testViewer({ subject: "ada" });
const newConv = () => `conv-${randomUUID()}`;
const PNG = Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), randomBytes(1_000)]);
const dataUrl = (bytes: Buffer, mediaType = "image/png") =>
  `data:${mediaType};base64,${bytes.toString("base64")}`;

async function* once(bytes: Uint8Array) {
  yield bytes;
}

async function ended({ plane }: TestServer, convId: string): Promise<string> {
  return until("the end", async () => {
    const { status } = (await plane.run(ada, convId)) ?? {};
    return status !== "running" && status !== "queued" && status;
  });
}

/** A server whose engine keeps the turns that it gets. */
async function recording(engine?: EngineFactory) {
  const turns: Turn[] = [];
  const server = await servers.start({
    engine:
      engine ??
      engineOf(async function* (turn) {
        turns.push(turn);
        yield { text_delta: { text: "ok" } };
      }),
  });
  return { server, turns };
}

test("an answer cannot take the id of another message, and later answers are stored", async () => {
  const { server } = await recording(
    engineOf(async function* ({ message }) {
      if (message === "hello") yield { text_delta: { text: "hi" } };
      else yield { text_delta: { message_id: "msg-1", text: message } };
    }),
  );
  const convId = newConv();
  const say = async (message: string) => {
    await server.plane.chat(ada, { convId, message });
    return ended(server, convId);
  };
  expect(await say("one")).toBe("finished");
  expect(await say("two")).toBe("failed");
  expect(await say("hello")).toBe("finished");
  const live = (await eventsOf(server.log, convId)).flatMap(({ event }) => event.text_delta?.text ?? []);
  expect(live).toEqual(["one", "hi"]);
  const { messages = [] } = await server.plane.state(ada, convId);
  expect(messages.map(({ parts }) => parts![0]!.text)).toEqual(["one", "one", "two", "hello", "hi"]);
});

test("after an answer that is too long for the history, the engine gets its end and is told so", async () => {
  const { server, turns } = await recording();
  const long = await recording(
    engineOf(async function* () {
      yield { text_delta: { text: "first words " } };
      for (let i = 0; i < 30; i++) yield { text_delta: { text: `${i} "quoted"\n`.repeat(3_000) } };
      yield { text_delta: { text: "last words" } };
    }),
  );
  const convId = newConv();
  await long.server.plane.chat(ada, { convId, message: "one" });
  expect(await ended(long.server, convId)).toBe("finished");
  await server.plane.chat(ada, { convId, message: "two" });
  expect(await ended(server, convId)).toBe("finished");
  const { history } = turns[0]!;
  expect(history.map(({ role }) => role)).toEqual(["assistant"]);
  const text = history[0]!.parts!.map(({ text = "" }) => text).join("");
  expect(text).toMatch(/^\[The beginning of this message is left out/);
  expect(text).toMatch(/last words$/);
  expect(text).not.toContain("first words");
  expect(JSON.stringify(history).length).toBeGreaterThan(1 << 18);
  expect(JSON.stringify(history).length).toBeLessThan((1 << 20) + 100);
});

test("characters that cannot be stored are replaced on devices as in the table", async () => {
  const { server } = await recording(
    engineOf(async function* ({ runId }) {
      yield { text_delta: { text: "a\0b \ud83d" } };
      yield { text_delta: { text: "\ude00" } };
      yield { tool_call: { tool_call_id: `${runId}\0`, tool: "t", input: { "k\0": "\ud800" } } };
    }),
  );
  const convId = newConv();
  const { run_id: runId } = await server.plane.chat(ada, { convId, message: "hello" });
  expect(await ended(server, convId)).toBe("finished");
  const live = (await eventsOf(server.log, convId)).map(({ event }) => event);
  const { messages = [] } = await server.plane.state(ada, convId);
  const text = "a\ufffdb 😀";
  const tool = { tool_call_id: `${runId}\ufffd`, tool: "t", input: { "k\ufffd": "\ufffd" } };
  expect(messages.at(-1)!.parts).toEqual([{ text }, { tool }]);
  expect(live.map(({ text_delta }) => text_delta?.text ?? "").join("")).toBe(text);
  expect(live.flatMap(({ tool_call }) => tool_call ?? [])).toEqual([
    { ...tool, message_id: messages.at(-1)!.message_id },
  ]);
});

describe("a message of parts", () => {
  test("reaches the engine with its files, the log, and the history of the next turn", async () => {
    const { server, turns } = await recording();
    const convId = newConv();
    const stored = await server.plane.putFile(ada, convId, { name: "a.png", bytes: once(PNG) });
    const parts = [
      { text: "What is" },
      { file: { url: stored.url!, name: "another name", media_type: "text/html" } },
      { file: { url: "https://files.example/b.pdf", media_type: "application/pdf", name: "b.pdf" } },
      { text: "this?" },
    ];
    const message = "What is\nthis?";
    await server.plane.chat(ada, { convId, message, parts, params: { tone: "dry" } });
    await ended(server, convId);
    const file = { url: stored.url, name: "a.png", media_type: "image/png", size: String(PNG.length) };
    const expected = [parts[0], { file }, { file: { ...parts[2]!.file, size: "0" } }, parts[3]];
    expect(turns[0]).toMatchObject({ message, parts: expected, params: { tone: "dry" }, sender: "ada" });
    expect(Buffer.compare((await turns[0]!.readFile(stored.url!)).bytes, PNG)).toBe(0);
    const [, said] = await eventsOf(server.log, convId);
    expect(said!.event.message).toMatchObject({ role: "user", parts: expected });
    expect(said!.event.message!.text).toBeUndefined();

    await server.plane.chat(ada, { convId, message: "And now?" });
    await until("the next turn", () => turns[1]);
    expect(turns[1]).toMatchObject({ parts: [{ text: "And now?" }], params: {} });
    expect(turns[1]!.history[0]!.parts).toEqual(expected);
  });

  test("may consist of files only, which are then its title", async () => {
    const { server, turns } = await recording();
    const convId = newConv();
    const parts = [{ file: { url: dataUrl(PNG), name: "cat.png" } }];
    await server.plane.chat(ada, { convId, message: "", parts });
    await ended(server, convId);
    expect(turns[0]).toMatchObject({ message: "", parts: [{ file: { media_type: "image/png" } }] });
    const { conversations } = await server.plane.list(ada, { after: "", limit: 10 });
    expect(conversations.find(({ conv_id }) => conv_id === convId)!.title).toBe("cat.png");
  });

  test("keeps its parts and params in the queue", async () => {
    const release = Promise.withResolvers<void>();
    const turns: Turn[] = [];
    const server = await servers.start({
      engine: engineOf(async function* (turn) {
        turns.push(turn);
        await release.promise;
        yield { text_delta: { text: "ok" } };
      }),
    });
    const convId = newConv();
    await server.plane.chat(ada, { convId, message: "first" });
    const parts = [{ file: { url: dataUrl(PNG) } }];
    await server.plane.chat(ada, { convId, message: "", parts, params: { n: 1 }, policy: "queue" });
    release.resolve();
    await until("the second turn", () => turns[1]);
    expect(turns[1]).toMatchObject({ parts: [{ file: { url: /^\/files\// } }], params: { n: 1 } });
  });

  test("is refused with the field when a file cannot be used", async () => {
    const { server } = await recording();
    const [mine, other] = [newConv(), newConv()];
    const { url } = await server.plane.putFile(ada, other, { name: "f", bytes: once(PNG) });
    const eve = testViewer({ org: "another", subject: "ada" });
    const foreign = await server.plane.putFile(eve, mine, { name: "f", bytes: once(PNG) });
    const cases = [
      [{ url }, "not_found", "parts[0].file.url"],
      [{ url: foreign.url }, "not_found", "parts[0].file.url"],
      [{ url: `/files/${randomUUID()}` }, "not_found", "parts[0].file.url"],
      [{ url: "file:///etc/passwd" }, "invalid_request", "parts[0].file.url"],
      [{ url: "/etc/passwd" }, "invalid_request", "parts[0].file.url"],
      [{ url: "data:image/png;base64," }, "invalid_request", "parts[0].file.url"],
      [{ url: "https://files.example/a" }, "invalid_request", "parts[0].file.media_type"],
      [{ url: dataUrl(randomBytes(26 << 20)) }, "payload_too_large", "body"],
    ] as const;
    for (const [file, code, field] of cases) {
      const parts = [{ file: { ...file } as { url: string } }];
      const sent = server.plane.chat(ada, { convId: mine, message: "", parts });
      await expect(sent, JSON.stringify(file).slice(0, 80)).rejects.toMatchObject({
        code,
        details: { field },
      });
    }
    const unknown = (id: string) =>
      server.plane
        .chat(ada, { convId: mine, message: "", parts: [{ file: { url: `/files/${id}` } }] })
        .catch((error) => (error as Error).message.replace(id, "x"));
    expect(await unknown(url!.slice("/files/".length))).toBe(await unknown(randomUUID()));
    // A file of another conversation stays unreadable within a turn, too.
    const { server: second, turns } = await recording();
    await second.plane.chat(ada, { convId: mine, message: "hi" });
    await until("the turn", () => turns[0]);
    await expect(turns[0]!.readFile(url!)).rejects.toMatchObject({ code: "not_found" });
    await expect(turns[0]!.readFile("https://files.example/a")).rejects.toMatchObject({
      code: "invalid_request",
    });
  });
});

describe("params", () => {
  test("have the type and conversions of the engine's schema, and are refused otherwise", async () => {
    const seen: unknown[] = [];
    const engine = defineEngine({
      params: z.object({ tone: z.enum(["dry", "warm"]).default("dry"), since: z.coerce.date().optional() }),
      async *run({ params }) {
        expectTypeOf(params).toEqualTypeOf<{ tone: "dry" | "warm"; since?: Date | undefined }>();
        seen.push(params);
        yield { text_delta: { text: params.tone } };
      },
    });
    const { server } = await recording(engine);
    const send = async (params: Record<string, string>) => {
      const convId = newConv();
      await server.plane.chat(ada, { convId, message: "hi", params });
      return ended(server, convId);
    };
    expect(await send({})).toBe("finished");
    expect(await send({ tone: "warm", since: "2026-01-01" })).toBe("finished");
    expect(seen).toEqual([{ tone: "dry" }, { tone: "warm", since: new Date("2026-01-01") }]);
    await expect(send({ tone: "loud" })).rejects.toMatchObject({
      code: "invalid_request",
      details: { field: "params.tone" },
    });
    expect(defineEngine({ params: type({ n: "number" }), async *run() {} }).params).toBeDefined();
  });

  test("are any bounded object without a schema", async () => {
    const { server, turns } = await recording();
    const convId = newConv();
    await server.plane.chat(ada, { convId, message: "hi", params: { any: [1, { thing: null }] } });
    await until("the turn", () => turns[0]);
    expect(turns[0]!.params).toEqual({ any: [1, { thing: null }] });
    const send = (params: Record<string, string>) =>
      server.plane.chat(ada, { convId: newConv(), message: "hi", params });
    await expect(send({ a: "x".repeat(70_000) })).rejects.toMatchObject({ code: "payload_too_large" });
    await expect(send({ a: "\0" })).rejects.toMatchObject({ code: "invalid_request" });
    await expect(send({ a: "\ud800" })).rejects.toMatchObject({ details: { field: "params.a" } });
  });
});

describe("an engine", () => {
  test("posts beside its answer, in order, with a message for each post", async () => {
    const { server } = await recording(
      engineOf(async function* ({ post }) {
        yield { text_delta: { text: "before " } };
        await post({ status: { text: "Looking" } }, { custom: { name: "found", data: 1 } });
        await post({ message: { role: "system", text: "A note." } });
        yield { text_delta: { text: "after" } };
      }),
    );
    const convId = newConv();
    await server.plane.chat(ada, { convId, message: "hi" });
    await ended(server, convId);
    const events = (await eventsOf(server.log, convId)).map(({ event }) => event);
    expect(events.map((event) => Object.keys(event)[0])).toEqual([
      ...[
        "run_started",
        "message",
        "text_delta",
        "status",
        "custom",
        "message",
        "text_delta",
        "run_finished",
      ],
    ]);
    const answer = events[2]!.text_delta!.message_id;
    expect(events[6]!.text_delta!.message_id).toBe(answer);
    expect(new Set([answer, events[4]!.custom!.message_id, events[5]!.message!.message_id]).size).toBe(3);
  });

  test("may send events too large for the log: they become files, and the run does not fail", async () => {
    const big = { rows: Array.from({ length: 30_000 }, (_, i) => `row ${i} äöü`) };
    const long = "wörd ".repeat(80_000);
    const image = dataUrl(Buffer.concat([PNG, randomBytes(400_000)]));
    const tool = { tool_call_id: "t1", tool: "search" };
    const { server } = await recording(
      engineOf(async function* () {
        yield { tool_call: { ...tool, input: big } };
        yield { tool_result: { ...tool, output: big } };
        yield { custom: { name: "table", data: big } };
        yield { file_added: { file: { url: image } } };
        yield { text_delta: { text: long } };
        yield { message: { message_id: "m2", text: long } };
        yield { tool_result: { ...tool, error: long } };
      }),
    );
    const convId = newConv();
    await server.plane.chat(ada, { convId, message: "hi" });
    expect(await ended(server, convId)).toBe("finished");
    const { messages } = await server.plane.state(ada, convId);
    const parts = messages![1]!.parts!;
    const content = async (url: string) => {
      const file = await server.plane.file(ada, url.slice("/files/".length));
      const pieces: Uint8Array[] = [];
      for await (const piece of file.read()) pieces.push(piece);
      return { file, bytes: Buffer.concat(pieces) };
    };
    const [used, table, picture, text] = parts;
    for (const reference of [used!.tool!.input, table!.custom!.data]) {
      const { file, bytes } = await content((reference as { file: string }).file);
      expect(file.mediaType).toBe("application/json");
      expect(JSON.parse(String(bytes))).toEqual(big);
    }
    const drawn = await content(picture!.file!.url!);
    expect(picture!.file).toMatchObject({ media_type: "image/png", size: String(drawn.bytes.length) });
    expect(dataUrl(drawn.bytes) === image).toBe(true);
    expect(text!.text === long).toBe(true);
    expect(messages![2]!.parts![0]!.text === long).toBe(true);
  });
});
