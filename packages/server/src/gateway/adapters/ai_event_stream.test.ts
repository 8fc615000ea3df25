import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import fastify from "fastify";
import { expect, test } from "vitest";
import { EventStream } from "./ai_event_stream.ts";

const HOUR = 3_600_000;
/** More than the buffers of a local connection hold. */
const LARGE = 16 << 20;

/** A stream and its reader, over a real connection. */
async function open() {
  const clock = new ManualClock();
  const context = await testContext({ clock });
  const shutdown = new AbortController();
  const app = fastify({ forceCloseConnections: true });
  let stream: EventStream | undefined;
  app.get("/", async (_request, reply) => {
    const expiresAt = clock.now() + HOUR;
    stream = new EventStream(reply.header("x-kept", "yes"), context, { signal: shutdown.signal, expiresAt });
  });
  const url = await app.listen({ port: 0, host: "127.0.0.1" });
  const [response] = (await once(get(url), "response")) as [IncomingMessage];
  let text = "";
  const over = new Promise<"ended" | "cut">((resolve) => {
    response.on("end", () => resolve("ended")).on("error", () => resolve("cut"));
  });
  response.setEncoding("utf8");
  return {
    clock,
    shutdown,
    response,
    stream: stream!,
    over,
    read: () =>
      response.on("data", (more: string) => {
        text += more;
      }),
    text: () => text,
    [Symbol.asyncDispose]: () => app.close(),
  };
}

test("sends events at once, with the headers set before", async () => {
  await using opened = await open();
  const { stream, response } = opened;
  opened.read();
  expect(response.headers).toMatchObject({ "content-type": "text/event-stream", "x-kept": "yes" });
  await stream.send([{ a: 1 }, { b: "two\nlines" }]);
  await stream.comment();
  await stream.send([]);
  stream.end("data: [DONE]\n\n");
  expect(await opened.over).toBe("ended");
  const events = 'data: {"a":1}\n\ndata: {"b":"two\\nlines"}\n\n';
  expect(opened.text()).toBe(`${events}: still here\n\ndata: [DONE]\n\n`);
  // Nothing is left to wait for.
  expect(opened.clock.pending).toBe(0);
});

test("makes the sender wait for a slow reader, and cuts it off after a time", async () => {
  await using opened = await open();
  const { stream, clock } = opened;
  let sent = false;
  const sending = stream.send(["x".repeat(LARGE)]).then(() => {
    sent = true;
  });
  await clock.advance(29_000);
  expect(sent).toBe(false);
  expect(stream.signal.aborted).toBe(false);
  await clock.advance(2_000);
  await sending;
  expect(stream.signal.aborted).toBe(true);
  opened.read();
  expect(await opened.over).toBe("cut");
  expect(clock.pending).toBe(0);
});

test("a waiting sender continues when its reader reads", async () => {
  await using opened = await open();
  const { stream } = opened;
  const sending = stream.send(["x".repeat(LARGE)]);
  opened.read();
  await sending;
  stream.end();
  expect(await opened.over).toBe("ended");
  expect(opened.text()).toHaveLength(LARGE + 'data: ""\n\n'.length);
});

test("a shutdown and the end of the token end the stream", async () => {
  for (const cut of ["shutdown", "expiry"]) {
    await using opened = await open();
    opened.read();
    await opened.stream.send([1]);
    if (cut === "shutdown") opened.shutdown.abort();
    else await opened.clock.advance(HOUR);
    expect(await opened.over).toBe("cut");
    expect(opened.stream.signal.aborted).toBe(true);
    expect(opened.clock.pending).toBe(0);
    // A sender does not notice.
    await opened.stream.send([2]);
    opened.stream.end();
  }
});

test("notices a disconnected reader, also while the sender waits", async () => {
  await using opened = await open();
  const { stream, response } = opened;
  const sending = stream.send(["x".repeat(LARGE)]);
  response.destroy();
  await sending;
  expect(stream.signal.aborted).toBe(true);
  expect(opened.clock.pending).toBe(0);
});
