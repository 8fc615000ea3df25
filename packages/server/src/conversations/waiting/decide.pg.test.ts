import { randomUUID } from "node:crypto";
import type { DecideToolRequestJson } from "@khala/contracts/conversation/v1";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { EngineEvent, EngineFactory, Turn } from "../engines/engine.ts";
import { parseCursor } from "../log/cursor.ts";
import { openLeases } from "../runs/leases.ts";
import { endOf, eventsOf, kindsOf, Servers, type TestServer } from "../test_support.ts";
import type { StartPosition } from "../timeline/attachment.ts";
import type { OutgoingFrames } from "../timeline/timeline.ts";

const ada = testViewer({ subject: "ada" });
const newConv = () => `conv-${randomUUID()}`;

let servers: Servers;
beforeEach(async () => {
  servers = await Servers.open();
});
afterEach(() => servers[Symbol.asyncDispose]());

const PAY = { tool_call_id: "pay", tool: "pay", input: { euros: 5 } };
const ASK = { tool_call_id: "ask", tool: "ask", input: { question: "Where?" } };

/** Asks for an approval to pay, for a client's output, or for both, by the message; then reports the results. */
class Asking {
  readonly turns: Turn[] = [];
  paid = 0;
  resumable = true;
  readonly factory: EngineFactory = () => ({ resumable: this.resumable, run: (turn) => this.#run(turn) });

  async *#run(turn: Turn): AsyncGenerator<EngineEvent> {
    this.turns.push(turn);
    const calls = (turn.resume?.messages ?? []).flatMap(({ parts = [] }) =>
      parts.flatMap(({ tool }) => tool ?? []),
    );
    if (calls.length === 0) {
      yield { text_delta: { text: "Let me see. " } };
      if (turn.message.includes("pay")) {
        yield { tool_call: PAY };
        yield { tool_approval_requested: { tool_call_id: "pay" } };
      }
      if (turn.message.includes("ask")) yield { tool_call: { ...ASK, waits_for: "output" } };
      return;
    }
    for (const { tool_call_id, decision, output, error } of calls) {
      if (decision?.approved && output === undefined) {
        this.paid++;
        yield { tool_result: { tool_call_id: tool_call_id!, tool: "pay", output: "paid" } };
      }
      if (decision && !decision.approved) yield { text_delta: { text: `Not paid: ${decision.reason}. ` } };
      if (tool_call_id === "ask") yield { text_delta: { text: `${error ?? JSON.stringify(output)}. ` } };
    }
    yield { text_delta: { text: "Done." } };
  }
}

const start = (engine: Asking, more = {}) => servers.start({ engine: engine.factory, ...more });
const statusOf = async ({ plane }: TestServer, conv: string) => (await plane.run(ada, conv))?.status;
const becomes = (server: TestServer, conv: string, status: string) =>
  until(status, async () => (await statusOf(server, conv)) === status);
const decide = ({ plane }: TestServer, conv: string, callId: string, decision: DecideToolRequestJson) =>
  plane.decideCalls(ada, conv, [{ callId, decision }]);
const answer = async ({ plane }: TestServer, conv: string) =>
  (await plane.state(ada, conv)).messages!.at(-1)!;

async function waiting(server: TestServer, message: string, conv = newConv()) {
  const { run_id } = await server.plane.chat(ada, { convId: conv, message });
  await becomes(server, conv, "waiting");
  return { conv, runId: run_id! };
}

test("a run that needs an approval waits, and the state and the log list its calls", async () => {
  const server = await start(new Asking());
  const { conv, runId } = await waiting(server, "pay and ask");
  const message_id = expect.any(String);
  const calls = [
    { message_id, tool_call_id: "ask", tool: "ask", waits_for: "output" },
    { message_id, tool_call_id: "pay", tool: "pay", waits_for: "approval" },
  ];
  const { run, messages } = await server.plane.state(ada, conv);
  expect(run).toMatchObject({ run_id: runId, status: "waiting", waits_for: calls });
  expect(messages!.at(-1)!.parts).toEqual([
    { text: "Let me see. " },
    { tool: { ...PAY, waits_for: "approval" } },
    { tool: { ...ASK, waits_for: "output" } },
  ]);
  expect((await kindsOf(server.log, conv, runId)).at(-1)).toBe("run_waiting");
});

test("after every server of the run is lost, an approval on another continues it and executes the tool once", async () => {
  const engine = new Asking();
  const first = await start(engine);
  const { conv, runId } = await waiting(first, "pay");
  await first.plane.stop();
  const second = await start(engine, { clock: new ManualClock(Date.now() + 5 * 86_400_000) });
  const decision = await decide(second, conv, "pay", { approve: true, reason: "It is fine." });
  expect(decision).toMatchObject({ run_id: runId, pending: 0 });
  await becomes(second, conv, "finished");
  expect(engine.paid).toBe(1);
  const { parts, status } = await answer(second, conv);
  expect(status).toBe("done");
  expect(parts).toMatchObject([
    { text: "Let me see. " },
    { tool: { decision: { approved: true, reason: "It is fine.", decided_by: "ada" }, output: "paid" } },
    { text: "Done." },
  ]);
  expect(engine.turns[1]).toMatchObject({ messageId: engine.turns[0]!.messageId, resume: { attempt: 0 } });
  const kinds = await kindsOf(second.log, conv, runId);
  expect(kinds.filter((kind) => kind.startsWith("run_"))).toEqual([
    "run_started",
    "run_waiting",
    "run_resumed",
    "run_finished",
  ]);
  // The position of the answer is before the decision.
  const events = await eventsOf(second.log, conv);
  const decided = events.find(({ event }) => event.tool_approval_decided)!;
  expect(decision.cursor).toContain(`${decided.seq - 1n}`);
});

test("a denial reaches the engine with its reason, and the tool is not executed", async () => {
  const engine = new Asking();
  const server = await start(engine);
  const { conv } = await waiting(server, "pay");
  await decide(server, conv, "pay", { approve: false, reason: "Too much" });
  await becomes(server, conv, "finished");
  expect(engine.paid).toBe(0);
  expect((await answer(server, conv)).parts!.at(-1)).toEqual({ text: "Not paid: Too much. Done." });
});

test("waits for the decisions on all calls of a step before the run continues", async () => {
  const engine = new Asking();
  const server = await start(engine);
  const { conv } = await waiting(server, "pay and ask");
  expect(await decide(server, conv, "ask", { output: { city: "Bern" } })).toMatchObject({ pending: 1 });
  expect((await server.plane.state(ada, conv)).run).toMatchObject({
    status: "waiting",
    waits_for: [{ tool_call_id: "pay" }],
  });
  expect(engine.turns).toHaveLength(1);
  expect(await decide(server, conv, "pay", { approve: true })).toMatchObject({ pending: 0 });
  await becomes(server, conv, "finished");
  expect((await answer(server, conv)).parts!.at(-1)).toEqual({ text: '{"city":"Bern"}. Done.' });
});

test("a client can report that it failed to execute a tool", async () => {
  const server = await start(new Asking());
  const { conv } = await waiting(server, "ask");
  await decide(server, conv, "ask", { error: "No camera" });
  await becomes(server, conv, "finished");
  expect((await answer(server, conv)).parts!.at(-1)).toEqual({ text: "No camera. Done." });
});

test("a repeated decision gets the same answer, and a different one is already_decided", async () => {
  const engine = new Asking();
  const [a, b] = [await start(engine), await start(engine)];
  const { conv } = await waiting(a, "pay");
  const answers = await Promise.all(
    [a, b, a, b].map((server) => decide(server, conv, "pay", { approve: true })),
  );
  expect(new Set(answers.map((each) => JSON.stringify(each))).size).toBe(1);
  await becomes(a, conv, "finished");
  expect(await decide(b, conv, "pay", { approve: true })).toEqual(answers[0]);
  for (const other of [{ approve: false }, { approve: true, reason: "Yes" }])
    await expect(decide(a, conv, "pay", other)).rejects.toMatchObject({ code: "already_decided" });
  expect(engine.paid).toBe(1);
  expect(engine.turns).toHaveLength(2);
});

test("refuses an invalid decision with its field, and one of an unknown call as not_found", async () => {
  const server = await start(new Asking());
  const { conv } = await waiting(server, "pay and ask");
  const refused = async (callId: string, decision: DecideToolRequestJson, want: object) =>
    expect(decide(server, conv, callId, decision)).rejects.toMatchObject(want);
  const invalid = (field: string) => ({ code: "invalid_request", details: { field } });
  await refused("pay", { output: 1 }, invalid("approve"));
  await refused("ask", { approve: true }, invalid("output"));
  await refused("pay", {}, invalid("approve"));
  await refused("pay", { approve: true, output: 1 }, invalid("approve"));
  await refused("ask", { output: 1, reason: "x" }, invalid("reason"));
  await refused("pay", { approve: true, reason: "\0" }, invalid("reason"));
  await refused("other", { approve: true }, { code: "not_found" });
  const eve = testViewer({ subject: "eve" });
  const byEve = server.plane.decideCalls(eve, conv, [{ callId: "pay", decision: { approve: true } }]);
  await expect(byEve).rejects.toMatchObject({ code: "not_found" });
});

test("a member may decide, a viewer may not", async () => {
  const server = await start(new Asking());
  const { conv } = await waiting(server, "pay");
  const decision = { callId: "pay", decision: { approve: true } };
  await server.plane.putParticipant(ada, conv, { subject: "vic", role: "viewer" });
  const vic = testViewer({ subject: "vic" });
  await expect(server.plane.decideCalls(vic, conv, [decision])).rejects.toMatchObject({
    code: "missing_role",
  });
  await server.plane.putParticipant(ada, conv, { subject: "mel", role: "member" });
  await server.plane.decideCalls(testViewer({ subject: "mel" }), conv, [decision]);
  await becomes(server, conv, "finished");
});

test("stop ends a waiting run as stopped, and withdraws its calls", async () => {
  const server = await start(new Asking());
  const { conv, runId } = await waiting(server, "pay");
  expect(await server.plane.stopRun(ada, conv)).toEqual({ run_id: runId, stopped: true });
  await becomes(server, conv, "stopped");
  expect(await endOf(server.log, conv, runId)).toHaveProperty("run_stopped");
  expect(await answer(server, conv)).toMatchObject({ status: "stopped" });
  const late = decide(server, conv, "pay", { approve: true });
  await expect(late).rejects.toMatchObject({ code: "already_decided", message: /withdrawn/ });
  expect(server.reported).toContain(`${runId} run.stopped`);
});

test("while a run waits, a message is refused, queued, or interrupts it", async () => {
  const engine = new Asking();
  const server = await start(engine);
  const { conv, runId } = await waiting(server, "pay");
  const send = (message: string, policy: "reject" | "queue" | "interrupt") =>
    server.plane.chat(ada, { convId: conv, message, policy });
  await expect(send("hello", "reject")).rejects.toMatchObject({ code: "conversation_busy" });
  const queued = await send("later", "queue");
  expect(await statusOf(server, conv)).toBe("waiting");
  const urgent = await send("now", "interrupt");
  await until("both", async () => (await server.plane.run(ada, conv, queued.run_id))?.status === "finished");
  expect((await server.plane.run(ada, conv, urgent.run_id))?.status).toBe("finished");
  expect((await server.plane.run(ada, conv, runId))?.status).toBe("stopped");
  expect(engine.turns.map(({ message }) => message)).toEqual(["pay", "now", "later"]);
});

test("the idempotency key of a waiting run gets the same answer", async () => {
  const server = await start(new Asking());
  const conv = newConv();
  const send = () => server.plane.chat(ada, { convId: conv, message: "pay", idempotencyKey: "k" });
  const first = await send();
  await becomes(server, conv, "waiting");
  expect(await send()).toEqual(first);
});

test("deletes a waiting run with its conversation", async () => {
  const server = await start(new Asking());
  const { conv } = await waiting(server, "pay");
  await server.plane.remove(ada, conv);
  const late = decide(server, conv, "pay", { approve: true });
  await expect(late).rejects.toMatchObject({ code: "not_found" });
  const left = await servers.database.query({
    text: "SELECT FROM runtime.awaited_calls WHERE conv_id = $1",
    values: [conv],
  });
  expect(left).toEqual([]);
});

test("sweeps and the run timeout leave a waiting run alone, and it takes no slot", async () => {
  const server = await start(new Asking(), { maxRunsPerOrg: 1, leaseMs: 300, runTimeoutMs: 1 << 30 });
  const { conv } = await waiting(server, "pay");
  for (let i = 0; i < 3; i++) await server.plane.sweep();
  expect(await statusOf(server, conv)).toBe("waiting");
  const other = newConv();
  await server.plane.chat(ada, { convId: other, message: "hi" });
  await becomes(server, other, "finished");
  await decide(server, conv, "pay", { approve: true });
  await becomes(server, conv, "finished");
});

test("a late lease renewal of the run's former server does not restore its lease", async () => {
  const server = await start(new Asking());
  const { conv, runId } = await waiting(server, "pay");
  const [{ fence }] = (await servers.database.query<{ fence: bigint }>({
    text: "SELECT fence FROM runtime.conversation_runs WHERE run_id = $1",
    values: [runId],
  })) as [{ fence: bigint }];
  const leases = openLeases(servers.database, { holder: server.plane.serverId, leaseMs: 1 });
  expect(await leases.renew([{ org: ada.org, convId: conv, runId, fence }])).toEqual([]);
  expect(await leases.claimExpired(1, { org: ada.org, convId: conv })).toEqual([]);
});

test("an engine that cannot continue fails when it asks, and only operators get the reason", async () => {
  const engine = new Asking();
  engine.resumable = false;
  const server = await start(engine);
  const conv = newConv();
  const { run_id } = await server.plane.chat(ada, { convId: conv, message: "pay" });
  await becomes(server, conv, "failed");
  expect(await endOf(server.log, conv, run_id!)).toMatchObject({ run_failed: { code: "engine_failed" } });
});

test("another server continues a run whose server is lost after the decision", async () => {
  const engine = new Asking();
  const server = await start(engine);
  const { conv, runId } = await waiting(server, "pay");
  // As after a crash between the decision and the takeover: decided, without a server.
  await decide(await start(engine, { maxEngines: 0 }), conv, "pay", { approve: true });
  await server.plane.sweep();
  await becomes(server, conv, "finished");
  expect(engine.paid).toBe(1);
  expect((await kindsOf(server.log, conv, runId)).filter((kind) => kind === "run_resumed")).toHaveLength(1);
});

test("soon finds a run that could not continue or end because its conversation was locked", async () => {
  const server = await start(new Asking(), { leaseMs: 600_000 });
  const { conv } = await waiting(server, "pay");
  const locked = Promise.withResolvers<void>();
  const release = Promise.withResolvers<void>();
  await servers.database.query({
    text: "UPDATE runtime.conversations SET lease_until = now() WHERE conv_id = $1",
    values: [conv],
  });
  const holding = servers.database.interactive(async (tx) => {
    await tx.query({
      text: "SELECT FROM runtime.conversations WHERE conv_id = $1 FOR NO KEY UPDATE",
      values: [conv],
    });
    locked.resolve();
    await release.promise;
  });
  await locked.promise;
  // Nothing is claimed while the row is locked.
  await server.plane.stopRun(ada, conv);
  release.resolve();
  await holding;
  await becomes(server, conv, "stopped");
});

test("finds a waiting call again when its server is lost before it stored that", async () => {
  const engine = new Asking();
  const clock = new ManualClock(Date.now());
  const gone = await start(engine, { clock, leaseMs: 600 });
  const conv = newConv();
  await servers.database.query({
    text: `CREATE FUNCTION runtime.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'`,
  });
  await servers.database.query({
    text: `CREATE TRIGGER refuse BEFORE INSERT ON runtime.awaited_calls FOR EACH ROW EXECUTE FUNCTION runtime.refuse()`,
  });
  const { run_id } = await gone.plane.chat(ada, { convId: conv, message: "pay" });
  await until("it waits in the log", async () =>
    (await kindsOf(gone.log, conv, run_id)).includes("run_waiting"),
  );
  await servers.database.query({ text: "DROP TRIGGER refuse ON runtime.awaited_calls" });
  const other = await start(engine, { leaseMs: 60_000 });
  await becomes(other, conv, "waiting");
  await decide(other, conv, "pay", { approve: true });
  await becomes(other, conv, "finished");
  expect(engine.paid).toBe(1);
  // It tries again, and finds that the run is not its own any more.
  await clock.advance(1_000);
});

test("a run waits as soon as its log says so, and an early decision waits for the record", async () => {
  const engine = new Asking();
  const server = await start(engine);
  const conv = newConv();
  const { run_id } = await server.plane.chat(ada, { convId: conv, message: "pay" });
  await until("it waits in the log", async () =>
    (await kindsOf(server.log, conv, run_id)).includes("run_waiting"),
  );
  expect((await server.plane.state(ada, conv)).run).toMatchObject({
    status: "waiting",
    waits_for: [{ tool_call_id: "pay", waits_for: "approval" }],
  });
  await decide(server, conv, "pay", { approve: true });
  await becomes(server, conv, "finished");
});

test("a socket that opens before the record knows what the run waits for", async () => {
  const server = await start(new Asking());
  const conv = newConv();
  await servers.database.query({
    text: `CREATE FUNCTION runtime.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END'`,
  });
  await servers.database.query({
    text: `CREATE TRIGGER refuse BEFORE INSERT ON runtime.awaited_calls FOR EACH ROW EXECUTE FUNCTION runtime.refuse()`,
  });
  const { run_id } = await server.plane.chat(ada, { convId: conv, message: "pay" });
  await until("it waits in the log", async () =>
    (await kindsOf(server.log, conv, run_id)).includes("run_waiting"),
  );
  const { cursor } = await server.plane.state(ada, conv);
  const starts: StartPosition[] = [
    { kind: "now" },
    { kind: "replay", messages: 10 },
    { kind: "after", cursor: parseCursor(cursor!, "after") },
    { kind: "after", cursor: { ...parseCursor(cursor!, "after"), epoch: "lost" } },
  ];
  for (const position of starts) {
    const frames: { type: string; run?: object }[] = [];
    const offer = (sent: OutgoingFrames) =>
      frames.push(...sent.frames.map(({ json }) => JSON.parse(json))) > 0;
    const attached = await server.plane.attach(ada, conv, { offer, end() {} }, position);
    await until("hello", () => frames.length > 0);
    expect(frames[0], position.kind).toMatchObject({
      type: "hello",
      run: { run_id, status: "waiting", waits_for: [{ tool_call_id: "pay", waits_for: "approval" }] },
    });
    attached.close();
  }
  await servers.database.query({ text: "DROP TRIGGER refuse ON runtime.awaited_calls" });
  await becomes(server, conv, "waiting");
});

test("sockets that open while a run begins to wait all learn of it", async () => {
  const server = await start(new Asking());
  const conv = newConv();
  const sockets: { waits: boolean; close(): void }[] = [];
  const open = async (position: StartPosition) => {
    const socket = { waits: false, close() {} };
    const offer = ({ frames }: OutgoingFrames) => {
      for (const { json } of frames) {
        const { type, run, event } = JSON.parse(json);
        if (type === "hello") socket.waits = run?.status === "waiting";
        if (event?.run_waiting) socket.waits = true;
      }
      return true;
    };
    sockets.push(Object.assign(socket, await server.plane.attach(ada, conv, { offer, end() {} }, position)));
  };
  const asked = server.plane.chat(ada, { convId: conv, message: "pay" });
  const opened: Promise<void>[] = [];
  while ((await statusOf(server, conv).catch(() => "")) !== "waiting")
    for (const position of [{ kind: "now" }, { kind: "replay", messages: 10 }] satisfies StartPosition[])
      opened.push(open(position));
  await Promise.all([asked, ...opened]);
  await until("all to know", () => sockets.every(({ waits }) => waits));
  for (const socket of sockets) socket.close();
});

test("stores a client's large output as a file", async () => {
  const server = await start(new Asking());
  const { conv } = await waiting(server, "ask");
  await decide(server, conv, "ask", { output: "x".repeat(200_000) });
  await becomes(server, conv, "finished");
  const [, tool] = (await answer(server, conv)).parts!;
  expect(tool!.tool!.output).toEqual({ file: expect.stringMatching(/^\/files\//) });
});

test("tools of the client reach the engine, also through the queue", async () => {
  const engine = new Asking();
  const server = await start(engine);
  const { conv } = await waiting(server, "ask");
  const tools = [{ name: "locate", description: "Where the person is.", parameters: { type: "object" } }];
  await server.plane.chat(ada, { convId: conv, message: "and now", tools, policy: "queue" });
  await decide(server, conv, "ask", { output: 1 });
  await until("the next turn", () => engine.turns[2]);
  expect(engine.turns.map((turn) => turn.tools)).toEqual([[], [], tools]);
});
