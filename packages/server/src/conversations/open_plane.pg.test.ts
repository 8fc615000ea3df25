import { randomUUID } from "node:crypto";
import type { KhalaError } from "@khala/contracts";
import type { EventJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { Changes, until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import type { OpenConversationPlane } from "./open_plane.ts";
import type { FollowedEvent } from "./plane.ts";
import { answerOf, endOf, engineOf, eventsOf, GatedEngine, Servers } from "./test_support.ts";
import type { TimelineSubscriber } from "./timeline/attachment.ts";
import type { OutgoingFrames } from "./timeline/timeline.ts";

const ada = testViewer();
const bob = testViewer({ subject: "bob" });
const convId = () => `conv-${randomUUID()}`;
const quick = engineOf(async function* ({ message }) {
  yield { text_delta: { text: `${message}!` } };
});

/** A frame, as a client reads it. */
interface Read {
  readonly type: string;
  readonly reason?: string;
  readonly event?: EventJson;
  readonly messages?: readonly TranscriptMessageJson[];
}

/** A socket that remembers what it was sent. */
class Socket extends Changes implements TimelineSubscriber {
  readonly frames: string[] = [];
  ended: KhalaError | undefined;

  offer({ frames }: OutgoingFrames): boolean {
    for (const { json } of frames) this.frames.push(json);
    this.changed();
    return true;
  }

  end(error: KhalaError): void {
    this.ended = error;
    this.changed();
  }

  get read(): Read[] {
    return this.frames.map((frame) => JSON.parse(frame));
  }

  /** Waits for a frame. */
  frame(what: string, matches: (frame: Read) => unknown) {
    return until(what, () => this.read.find(matches), { on: this });
  }
}

const ends = ({ event }: Read) => event?.run_finished;

async function collect(plane: OpenConversationPlane, conv: string, cursor: string) {
  const events: FollowedEvent[] = [];
  for await (const event of plane.follow(ada, conv, cursor, AbortSignal.timeout(30_000))) {
    events.push(event);
    if (event.event.run_finished) break;
  }
  return events;
}

test("sockets on two servers get hello, then the same bytes of every event", async () => {
  await using servers = await Servers.open();
  const a = await servers.start({ engine: quick });
  const b = await servers.start({ engine: quick });
  const conv = convId();
  const sockets = [new Socket(), new Socket(), new Socket()];
  for (const [i, socket] of sockets.entries())
    await (i < 2 ? a : b).plane.attach(ada, conv, socket, { kind: "now" });
  await a.plane.chat(ada, { convId: conv, message: "hi" });
  for (const socket of sockets) await socket.frame("the end", ends);
  expect(sockets[0]!.read[0]).toMatchObject({ type: "hello", conv_id: conv, run: null });
  expect(sockets[1]!.frames).toEqual(sockets[0]!.frames);
  expect(sockets[2]!.frames).toEqual(sockets[0]!.frames);
});

test("a socket attached during an answer gets the text so far, and the id of its run", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const { plane, log } = await servers.start({ engine: engine.factory });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "hi" });
  await until("some text", async () => answerOf(await eventsOf(log, conv)));
  const socket = new Socket();
  await plane.attach(ada, conv, socket, { kind: "now" });
  expect(socket.read[0]).toMatchObject({ type: "hello", run: { run_id, status: "running" } });
  const { messages } = await socket.frame("a snapshot", ({ type }) => type === "snapshot");
  expect(messages!.map(({ parts }) => parts![0]!.text)).toEqual(["hi", "hi: "]);
  engine.release("hi");
  await socket.frame("the end", ends);
  expect(socket.read.map(({ event }) => event?.text_delta?.text ?? "").join("")).toBe("done");
});

test("a conversation belongs to the first subject that attaches to it", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({ engine: quick });
  const conv = convId();
  await plane.attach(ada, conv, new Socket(), { kind: "now" });
  await expect(plane.attach(bob, conv, new Socket(), { kind: "now" })).rejects.toMatchObject({
    code: "not_found",
  });
  await expect(plane.chat(bob, { convId: conv, message: "hi" })).rejects.toMatchObject({ code: "not_found" });
});

test("a run whose end is in the log is over, though its record is written later", async () => {
  await using servers = await Servers.open();
  const { plane, log } = await servers.start({ engine: quick });
  const conv = convId();
  const { run_id = "" } = await plane.chat(ada, { convId: conv, message: "hi" });
  await until("the record", async () => (await plane.run(ada, conv))?.status === "finished");
  expect(await endOf(log, conv, run_id)).toMatchObject({ run_finished: {} });
  const moments = [
    "UPDATE runtime.conversation_runs SET status = 'running' WHERE run_id = $1",
    "UPDATE runtime.conversations SET run_id = $1 WHERE conv_id = (SELECT conv_id FROM runtime.conversation_runs WHERE run_id = $1)",
  ];
  for (const text of moments) await servers.database.query({ text, values: [run_id] });
  expect(await plane.run(ada, conv)).toMatchObject({ run_id, status: "running" });
  const state = await plane.state(ada, conv);
  expect(state.last_run).toMatchObject({ run_id, status: "finished" });
  expect(state.messages!.at(-1)).toMatchObject({ role: "assistant", status: "done" });
});

test("a snapshot has the messages and their cursor, also right after a message was accepted", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const a = await servers.start({ engine: engine.factory });
  const b = await servers.start({ engine: engine.factory });
  servers.wakeupsOn = false;
  const conv = convId();
  await b.plane.attach(ada, conv, new Socket(), { kind: "now" });
  const { run_id } = await a.plane.chat(ada, { convId: conv, message: "hi" });
  const state = await b.plane.state(ada, conv);
  expect(state).toMatchObject({ conv_id: conv, run: { run_id, status: "running" } });
  expect(state.messages![0]).toMatchObject({ role: "user", parts: [{ text: "hi" }] });
  await until("it runs", () => engine.started.length === 1);
  engine.release("hi");
  await until("the record", async () => (await a.plane.run(ada, conv))?.status === "finished");
  const after = await b.plane.state(ada, conv);
  expect(after.last_run).toMatchObject({ status: "finished" });
  expect(after.messages!.at(-1)).toMatchObject({
    role: "assistant",
    status: "done",
    parts: [{ text: "hi: done" }],
  });
});

test("following from the cursor of a message returns its whole run, whenever that begins", async () => {
  await using servers = await Servers.open();
  const { plane, log } = await servers.start({ engine: quick });
  const conv = convId();
  const { cursor, run_id } = await plane.chat(ada, { convId: conv, message: "hi" });
  const live = await collect(plane, conv, cursor!);
  const later = await collect(plane, conv, cursor!);
  expect(later).toEqual(live);
  const { epoch } = await log.open(`chat:${conv}`);
  expect(live.map(({ seq, runId, event }) => ({ seq, runId, event }))).toEqual(await eventsOf(log, conv));
  expect(live[0]!.runId).toBe(run_id);
  expect(live.at(-1)!.cursor).toContain(epoch);
  const rest = await collect(plane, conv, live[1]!.cursor);
  expect(rest).toEqual(live.slice(2));
});

test("a cursor of another stream, and one from the future, are stale", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({ engine: quick });
  const conv = convId();
  const { cursor } = await plane.chat(ada, { convId: conv, message: "hi" });
  const epoch = cursor!.split(".")[0];
  for (const stale of ["other.0-0", `${epoch}.9999999999999-999`])
    await expect(collect(plane, conv, stale)).rejects.toMatchObject({ code: "stale_cursor" });
  await expect(collect(plane, conv, "nonsense")).rejects.toMatchObject({ code: "invalid_request" });
});

test("following ends with the signal, and with the server", async () => {
  await using servers = await Servers.open();
  const { plane } = await servers.start({ engine: quick });
  const conv = convId();
  const { cursor } = await plane.chat(ada, { convId: conv, message: "hi" });
  const abort = new AbortController();
  for await (const { event } of plane.follow(ada, conv, cursor!, abort.signal))
    if (event.run_finished) abort.abort();
  const following = (async () => {
    for await (const _ of plane.follow(ada, conv, cursor!, new AbortController().signal));
  })();
  const [outcome] = await Promise.allSettled([following, plane.stop()]);
  expect(outcome).toMatchObject({ status: "rejected", reason: { code: "shutting_down" } });
});

test("removing a conversation removes its run, log and sockets everywhere; the next one starts new", async () => {
  await using servers = await Servers.open();
  const engine = new GatedEngine();
  const a = await servers.start({ engine: engine.factory });
  const b = await servers.start({ engine: engine.factory });
  const conv = convId();
  const { run_id, cursor } = await a.plane.chat(ada, { convId: conv, message: "hi", idempotencyKey: "k" });
  await until("some text", async () => answerOf(await eventsOf(a.log, conv)));
  const sockets = [new Socket(), new Socket()];
  await a.plane.attach(ada, conv, sockets[0]!, { kind: "now" });
  await b.plane.attach(ada, conv, sockets[1]!, { kind: "now" });
  await b.plane.remove(ada, conv);
  for (const socket of sockets) {
    await socket.frame("a resync", ({ type, reason }) => type === "resync" && reason === "deleted");
    expect((await until("the end", () => socket.ended, { on: socket })).code).toBe("not_found");
  }
  await expect(b.plane.state(ada, conv)).rejects.toMatchObject({ code: "not_found" });
  await until("the run is dropped", async () =>
    (await a.context.telemetry.scrape()).includes("khala_conversation_runs_running 0"),
  );
  expect(await a.log.bounds([`chat:${conv}`])).toEqual([undefined]);
  expect(b.reported).toContain(`${run_id} run.stopped`);
  // The next owner of the name finds nothing of it.
  const again = await a.plane.chat(bob, { convId: conv, message: "mine now", idempotencyKey: "k" });
  expect(again.run_id).not.toBe(run_id);
  const state = await a.plane.state(bob, conv);
  expect(state.messages![0]!.parts).toEqual([{ text: "mine now" }]);
  await expect(async () => {
    for await (const _ of a.plane.follow(bob, conv, cursor!, AbortSignal.timeout(30_000)));
  }).rejects.toMatchObject({ code: "stale_cursor" });
});

test("nothing remains of closed sockets", async () => {
  await using servers = await Servers.open();
  const { plane, log, context } = await servers.start({ engine: quick, graceMs: 0 });
  const conv = convId();
  const { run_id } = await plane.chat(ada, { convId: conv, message: "hi" });
  await until("the end", () => endOf(log, conv, run_id!));
  for (let i = 0; i < 50; i++) {
    const attached = await plane.attach(ada, conv, new Socket(), { kind: "replay", messages: 2 });
    attached.close();
    attached.close();
  }
  await until("no reader", async () => {
    const text = await context.telemetry.scrape();
    return ["khala_conversation_sockets 0", "khala_conversation_readers 0"].every((line) =>
      text.includes(line),
    );
  });
});
