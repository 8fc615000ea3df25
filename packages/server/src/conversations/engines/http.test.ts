import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text as readText } from "node:stream/consumers";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { http } from "./http.ts";
import { play, textOf, turnOf } from "./test_support.ts";

const NDJSON = { "content-type": "application/x-ndjson" };
const SSE = { "content-type": "text/event-stream; charset=utf-8" };

/** An engine at an address of its own, stopped at the end of the test. */
async function engineAt(answer: (request: IncomingMessage, response: ServerResponse) => unknown) {
  const server = createServer(answer).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** The result of an answer with this body. */
async function answered(body: string | Uint8Array, headers: Record<string, string> = NDJSON, options = {}) {
  await using engine = await engineAt((_, response) => response.writeHead(200, headers).end(body));
  return await play(http(engine.url, options), turnOf("hi"));
}

const delta = (text: string) => ({ text_delta: { text } });
const finished = { run_finished: { reason: "stop", usage: { output_tokens: 2 } } };

test("sends the turn, the headers and the token", async () => {
  const asked = Promise.withResolvers<{ request: IncomingMessage; body: string }>();
  await using engine = await engineAt(async (request, response) => {
    asked.resolve({ request, body: await readText(request) });
    response.writeHead(200, NDJSON).end(JSON.stringify(finished));
  });
  const history = [{ message_id: "m0", role: "user", parts: [{ text: "before" }] }];
  const options = { bearer: "s3cret", headers: { "x-team": "blue" } };
  await play(http(engine.url, options), turnOf("hi", { history }));
  const { request, body } = await asked.promise;
  expect(request.method).toBe("POST");
  expect(request.headers).toMatchObject({
    "content-type": "application/json",
    authorization: "Bearer s3cret",
    "x-team": "blue",
  });
  expect(JSON.parse(body)).toEqual({
    conv_id: "c1",
    sender: "ada",
    parts: [{ text: "hi" }],
    params: {},
    run_id: "r1",
    message_id: "m1",
    message: "hi",
    history,
    org: "acme",
    subject: "ada",
  });
});

test("NDJSON and server-sent events give the same events, wherever the bytes are split", async () => {
  const events = [
    { reasoning_delta: { text: "Hm" } },
    { tool_call: { tool_call_id: "t", tool: "find", input: { q: ["ü", null, 1.5] } } },
    { tool_result: { tool_call_id: "t", tool: "find", error: "Nothing." } },
    { custom: { name: "find_result", data: null } },
    { message: { role: "system", text: "note", message_id: "own" } },
    { status: { text: "Writing" } },
    delta("grüße 👋\n"),
    finished,
  ];
  const ndjson = `\n${events.map((event) => JSON.stringify(event)).join("\r\n\n")}`;
  const sse = [
    ": hello\n\nretry: 5\nevent: x\nid: 1\n",
    ...events.map((event) => `data:${JSON.stringify(event, null, 1).replaceAll("\n", "\ndata: ")}\n\n`),
    "data: [DONE]\n\n",
  ].join("");
  for (const [headers, body] of [
    [NDJSON, ndjson],
    [SSE, sse],
  ] as const) {
    expect(await answered(body, headers)).toEqual({ events, error: undefined });
    await using engine = await engineAt(async (_, response) => {
      response.writeHead(200, headers);
      for (const byte of Buffer.from(body)) {
        response.write(Uint8Array.of(byte));
        await new Promise(setImmediate);
      }
      response.end();
    });
    expect(await play(http(engine.url), turnOf("hi"))).toEqual({ events, error: undefined });
  }
});

test("passes events on as they arrive, before the answer is complete", async () => {
  let response: ServerResponse | undefined;
  await using engine = await engineAt((_, own) => {
    response = own.writeHead(200, NDJSON);
    response.write(`${JSON.stringify(delta("0"))}\n`);
  });
  const { events } = await play(http(engine.url), turnOf("hi"), {
    // Each event is sent only after the one before it has arrived.
    onEvent({ text_delta }) {
      const next = Number(text_delta?.text) + 1;
      response!.write(`${JSON.stringify(next < 5 ? delta(String(next)) : finished)}\n`);
    },
  });
  expect(textOf(events)).toBe("01234");
});

test("ignores events after run_finished, and accepts a complete answer without it", async () => {
  const lines = (...all: object[]) => all.map((event) => `${JSON.stringify(event)}\n`).join("");
  expect((await answered(lines(delta("a"), finished, delta("b")))).events).toEqual([delta("a"), finished]);
  expect(await answered(lines(delta("a")))).toEqual({ events: [delta("a")], error: undefined });
});

test("reports an answer that is cut off, however the connection ends", async () => {
  for (const chunked of [true, false]) {
    await using engine = await engineAt(({ socket }, response) => {
      // Without chunks, only the end of the connection ends the answer.
      response.useChunkedEncodingByDefault = chunked;
      response.writeHead(200, NDJSON).write(`${JSON.stringify(delta("half"))}\n`, () => socket.end());
    });
    const { events, error } = await play(http(engine.url), turnOf("hi"));
    expect(events).toEqual([delta("half")]);
    expect(error?.message).toContain(chunked ? "cannot be reached" : "ended without run_finished");
  }
});

test("reports a refusal or redirect with its status and the beginning of its body", async () => {
  await using engine = await engineAt((_, response) =>
    response.writeHead(503, { "content-type": "text/html" }).end(`busy ${"x".repeat(10_000)}`),
  );
  const { error } = await play(http(engine.url), turnOf("hi"));
  expect(error).toMatchObject({ name: "KhalaError", code: "unavailable" });
  expect(error!.message).toBe(`The engine answered 503: busy ${"x".repeat(195)}`);
  await using elsewhere = await engineAt((_, response) =>
    response.writeHead(307, { location: engine.url }).end(),
  );
  expect((await play(http(elsewhere.url), turnOf("hi"))).error?.message).toBe("The engine answered 307");
});

test("names each kind of invalid answer, with its line", async () => {
  const message = async (body: string, headers = NDJSON, options = {}) =>
    (await answered(body, headers, options)).error?.message;
  const good = JSON.stringify(delta("a"));
  expect(await message(`${good}\n\n{"text_delta":`)).toBe(
    `Line 3 of the engine's answer is not JSON: {"text_delta":`,
  );
  expect(await message(`: hi\ndata: ${good}\n\ndata: {]\n\n`, SSE)).toBe(
    "Line 4 of the engine's answer is not JSON: {]",
  );
  for (const wrong of [
    '{"text_delta":{"text":1}}',
    '{"text_delta":{"txt":"a"}}',
    "[]",
    "null",
    '"a"',
    '{"x":1}',
  ])
    expect(await message(wrong)).toBe(`Line 1 of the engine's answer is not an event: ${wrong}`);
  expect(await message(`{"text_delta":{},"status":{}}`)).toContain("Line 1 of the engine's answer is not an");
  const rounded = `{"tool_result":{"tool_call_id":"t","output":{"ids":[1,9007199254740993]}}}`;
  expect(await message(`${good}\n${rounded}`)).toContain(
    "Line 2 of the engine's answer cannot be kept: tool_result.output.ids[1] is an integer beyond ±9007199254740991",
  );
  expect(await message("{}")).toContain("Line 1 of the engine's answer is an event without a body");
  expect(await message('{"run_started":{}}')).toContain("only the server may send");
  expect(await message("")).toBe("The engine's answer is empty: it has no event.");
  expect(await message("data: [DONE]\n\n", SSE)).toBe("The engine's answer is empty: it has no event.");
  expect(await message(good, { "content-type": "text/plain" })).toContain('the content type "text/plain"');
  expect(await message(JSON.stringify(delta("x".repeat(200))), NDJSON, { maxLineLength: 100 })).toContain(
    "Line 1 of the engine's answer is longer than 100 characters",
  );
  expect(await message("data: 12345678\n".repeat(20), SSE, { maxLineLength: 100 })).toContain(
    "The event on line 1 of the engine's answer is longer than 100 characters",
  );
});

test("sends an interrupted turn with the part of it that is kept", async () => {
  const bodies: string[] = [];
  await using engine = await engineAt(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    bodies.push(body);
    response.writeHead(200, NDJSON).end(`${JSON.stringify(finished)}\n`);
  });
  expect(http(engine.url)(turnOf("hi")).resumable).toBe(false);
  const factory = http(engine.url, { resumable: true });
  expect(factory(turnOf("hi")).resumable).toBe(true);
  const resume = { attempt: 2, messages: [{ message_id: "m1", role: "assistant", parts: [] }] };
  await play(factory, turnOf("hi", { resume }));
  await play(factory, turnOf("hi"));
  expect(bodies.map((body) => JSON.parse(body).resume)).toEqual([resume, undefined]);
});

test("an engine can report its own failure", async () => {
  const { events, error } = await answered(
    `${JSON.stringify(delta("so"))}\n{"run_failed":{"message":"Out of ink"}}`,
  );
  expect(events).toEqual([delta("so")]);
  expect(error).toMatchObject({ name: "PublicError", code: "engine_failed", message: "Out of ink" });
});

test("reports a network error without the address when nothing listens", async () => {
  const engine = await engineAt(() => {});
  await engine[Symbol.asyncDispose]();
  const { error } = await play(http(engine.url), turnOf("hi"));
  expect(error).toMatchObject({ name: "PublicError", code: "network" });
  expect(error?.message).not.toMatch(/127|localhost|\d{4}/);
  expect(error?.cause).toMatchObject({ cause: { code: "ECONNREFUSED" } });
});

test("abandons an engine that does not begin, and one that falls silent", async () => {
  const clock = new ManualClock();
  const asked = Promise.withResolvers<void>();
  await using mute = await engineAt(() => asked.resolve());
  const waiting = play(http(mute.url, { clock, connectTimeoutMs: 500 }), turnOf("hi"));
  await asked.promise;
  await clock.advance(500);
  expect((await waiting).error).toMatchObject({
    code: "timeout",
    cause: { message: "The engine did not answer within 500 ms." },
  });

  await using silent = await engineAt((_, response) =>
    response.writeHead(200, NDJSON).write(`${JSON.stringify(delta("a"))}\n`),
  );
  const outcome = await play(http(silent.url, { clock, idleTimeoutMs: 700 }), turnOf("hi"), {
    onEvent: () => setImmediate(() => clock.advance(700)),
  });
  expect(outcome.events).toEqual([delta("a")]);
  expect(outcome.error).toMatchObject({
    code: "timeout",
    cause: { message: "The engine sent nothing for 700 ms." },
  });
  expect(clock.pending).toBe(0);
});

test("does not take a slow reader for a silent engine", async () => {
  const clock = new ManualClock();
  const body = [delta("a"), delta("b"), finished].map((event) => `${JSON.stringify(event)}\n`).join("");
  await using engine = await engineAt((_, response) => response.writeHead(200, NDJSON).end(body));
  const { events, error } = await play(http(engine.url, { clock, idleTimeoutMs: 700 }), turnOf("hi"), {
    onEvent: () => clock.advance(10_000),
  });
  expect(error).toBeUndefined();
  expect(events).toHaveLength(3);
});

test("an abort ends the request without an error, before the answer and during it", async () => {
  for (const begins of [false, true]) {
    const stop = new AbortController();
    const closed = Promise.withResolvers<void>();
    await using engine = await engineAt((_, response) => {
      response.on("close", closed.resolve);
      if (begins) response.writeHead(200, NDJSON).write(`${JSON.stringify(delta("a"))}\n`);
      else stop.abort();
    });
    const { events, error } = await play(http(engine.url), turnOf("hi"), {
      signal: stop.signal,
      onEvent: () => stop.abort(),
    });
    await closed.promise;
    expect({ events, error }).toEqual({ events: begins ? [delta("a")] : [], error: undefined });
  }
});

test("a consumer that stops reading ends the request", async () => {
  const closed = Promise.withResolvers<void>();
  await using engine = await engineAt((_, response) => {
    response.on("close", closed.resolve);
    response.writeHead(200, NDJSON).write(`${JSON.stringify(delta("a"))}\n`);
  });
  const turn = turnOf("hi");
  for await (const _ of http(engine.url)(turn).run(turn, new AbortController().signal)) break;
  await closed.promise;
});

test("refuses an invalid URL or limit at once", () => {
  expect(() => http("ftp://example.com")).toThrow("must start with http");
  expect(() => http("http://example.com", { idleTimeoutMs: 300_000 })).toThrow("at most 290000");
});
