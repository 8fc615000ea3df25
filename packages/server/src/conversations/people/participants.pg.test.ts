import { randomUUID } from "node:crypto";
import type { KhalaError } from "@khala/contracts";
import { until } from "@khala/test-support/kit/until";
import { testViewer } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import type { Caller } from "../../access/viewer.ts";
import { engineOf, eventsOf, GatedEngine, Servers, type TestServer } from "../test_support.ts";

const ada = testViewer();
const bob = testViewer({ subject: "bob" });
const eve = testViewer({ subject: "eve" });
const service = testViewer({ subject: "svc", scopes: ["chat:service"] });
const convId = () => `conv-${randomUUID()}`;
const silent = engineOf(async function* () {});

async function begun({ plane }: TestServer, conv = convId()): Promise<string> {
  await plane.chat(ada, { convId: conv, message: "hello" });
  await until("the end", async () => (await plane.run(ada, conv))?.status === "finished");
  return conv;
}

async function attach({ plane }: TestServer, caller: Caller, conv: string) {
  const types: string[] = [];
  const ended: KhalaError[] = [];
  const attached = await plane.attach(
    caller,
    conv,
    {
      offer(sent) {
        types.push(...sent.frames.map(({ json }) => JSON.parse(json).type));
        return true;
      },
      end: (error) => void ended.push(error),
    },
    { kind: "now" },
  );
  return { attached, types, ended };
}

test("members read and write, viewers read, and only the owner and services manage", async () => {
  await using servers = await Servers.open();
  const server = await servers.start({ engine: silent });
  const { plane, log } = server;
  const conv = await begun(server);
  await expect(plane.state(bob, conv)).rejects.toMatchObject({ code: "not_found" });
  const owner = { subject: "ada", role: "owner" };
  expect(await plane.putParticipant(ada, conv, { subject: "bob", role: "viewer" })).toEqual({
    participants: [owner, { subject: "bob", role: "viewer" }],
  });
  const { messages, participants } = await plane.state(bob, conv);
  expect([messages?.length, participants?.length]).toEqual([1, 2]);
  const refused = { code: "missing_role", meaning: { status: 403 } };
  const message = { convId: conv, message: "me too" };
  await expect(plane.chat(bob, message)).rejects.toMatchObject(refused);
  await expect(plane.stopRun(bob, conv)).rejects.toMatchObject(refused);
  await expect(plane.remove(bob, conv)).rejects.toMatchObject(refused);
  const mallory = { subject: "eve", role: "member" };
  await expect(plane.putParticipant(bob, conv, mallory)).rejects.toMatchObject(refused);
  await plane.putParticipant(service, conv, { subject: "bob", role: "member" });
  await expect(plane.putParticipant(bob, conv, mallory)).rejects.toMatchObject(refused);
  await expect(plane.removeParticipant(bob, conv, "bob")).rejects.toMatchObject(refused);
  await expect(plane.remove(bob, conv)).rejects.toMatchObject(refused);
  const { run_id } = await plane.chat(bob, message);
  await until("the end", async () => (await plane.run(bob, conv, run_id))?.status === "finished");
  // The engine works for the owner, and the log names the sender.
  const events = await eventsOf(log, conv);
  expect(events.findLast(({ event }) => event.run_started)?.event.run_started?.subject).toBe("bob");
  expect(events.flatMap(({ event }) => event.participants_changed ?? [])).toEqual([
    { participants: [{ subject: "bob", role: "viewer" }] },
    { participants: [{ subject: "bob", role: "member" }] },
  ]);
  await plane.removeParticipant(ada, conv, "bob");
  await expect(plane.state(bob, conv)).rejects.toMatchObject({ code: "not_found" });
  await expect(plane.chat(bob, message)).rejects.toMatchObject({ code: "not_found" });
  await expect(plane.state(eve, conv)).rejects.toMatchObject({ code: "not_found" });
});

test("a role applies to its org and its conversation only", async () => {
  await using servers = await Servers.open();
  const server = await servers.start({ engine: silent });
  const [one, two] = [await begun(server), await begun(server)];
  await server.plane.putParticipant(ada, one, { subject: "bob", role: "member" });
  await expect(server.plane.state(bob, two)).rejects.toMatchObject({ code: "not_found" });
  const namesake = testViewer({ subject: "bob", org: "globex" });
  await expect(server.plane.state(namesake, one)).rejects.toMatchObject({ code: "not_found" });
  await expect(server.plane.state(testViewer({ subject: "bob", scopes: [] }), one)).rejects.toMatchObject({
    code: "not_found",
  });
});

test("refuses an invalid participant, and one too many, with the field", async () => {
  await using servers = await Servers.open();
  const server = await servers.start({ engine: silent });
  const { plane } = server;
  const conv = await begun(server);
  for (const [subject, role, field] of [
    ["", "member", "subject"],
    ["a\nb", "member", "subject"],
    ["ada", "member", "subject"],
    ["bob", "owner", "role"],
    ["bob", "", "role"],
  ] as const)
    await expect(plane.putParticipant(ada, conv, { subject, role })).rejects.toMatchObject({
      code: "invalid_request",
      details: { field },
    });
  await servers.database.query({
    text: `INSERT INTO runtime.participants (org_id, conv_id, subject, role)
      SELECT 'acme', $1, 's' || i, 'viewer' FROM generate_series(1, 100) i`,
    values: [conv],
  });
  const more = plane.putParticipant(ada, conv, { subject: "bob", role: "viewer" });
  await expect(more).rejects.toMatchObject({ code: "limit_exceeded" });
  // One of them may still change.
  await plane.putParticipant(ada, conv, { subject: "s1", role: "member" });
});

test.each([true, false])(
  "ends the sockets and streams of a removed participant on every server (wakeups: %s), and no others",
  async (wakeups) => {
    await using servers = await Servers.open();
    const engine = new GatedEngine();
    const a = await servers.start({ engine: engine.factory });
    const b = await servers.start({ engine: engine.factory });
    const conv = convId();
    const { cursor } = await a.plane.chat(ada, { convId: conv, message: "one" });
    await until("the run", () => engine.started.length === 1);
    await a.plane.putParticipant(ada, conv, { subject: "bob", role: "member" });
    const sockets = [await attach(a, bob, conv), await attach(b, bob, conv)];
    const kept = [await attach(b, ada, conv), await attach(b, service, conv)];
    const follow = async () => {
      for await (const _ of b.plane.follow(bob, conv, cursor!, AbortSignal.timeout(30_000)));
    };
    const followed = expect(follow()).rejects.toMatchObject({ code: "not_found" });
    // A lower role keeps what it allows.
    servers.wakeupsOn = wakeups;
    await a.plane.putParticipant(ada, conv, { subject: "bob", role: "viewer" });
    await a.plane.removeParticipant(ada, conv, "bob");
    await followed;
    await until("their sockets to end", () => sockets.every(({ ended }) => ended.length === 1));
    for (const { ended, attached } of sockets) {
      expect(ended[0]).toMatchObject({ code: "not_found", meaning: { close: 4404 } });
      expect(() => attached.check(bob)).toThrow("you may not see it");
    }
    expect(a.plane.attachedTo({ org: "acme", convId: conv })).toBe(0);
    expect(kept.every(({ ended }) => ended.length === 0)).toBe(true);
    engine.release("one");
    await until("the event", () => kept.every(({ types }) => types.includes("event")));
  },
);

test("a token for the whole org keeps its socket when its role ends", async () => {
  await using servers = await Servers.open();
  const server = await servers.start({ engine: silent });
  const conv = await begun(server);
  await server.plane.putParticipant(ada, conv, { subject: "bob", role: "viewer" });
  const socket = await attach(server, bob, conv);
  const both = testViewer({ subject: "bob", scopes: ["chat", "chat:service"] });
  socket.attached.check(both);
  const plain = await attach(server, bob, conv);
  await server.plane.removeParticipant(ada, conv, "bob");
  await until("the other socket to end", () => plain.ended.length === 1);
  // The role of the other may have been read before this one's.
  await until("its role to be read", () => {
    try {
      socket.attached.check(bob);
    } catch (error) {
      return (error as Error).message.includes("you may not see it");
    }
    socket.attached.check(both);
    return false;
  });
  expect(socket.ended).toEqual([]);
});

test("lists the conversations a subject takes part in, newest first, page by page", async () => {
  await using servers = await Servers.open();
  const server = await servers.start({ engine: silent });
  const { plane } = server;
  const own = convId();
  const shared = [await begun(server), await begun(server)];
  await plane.chat(bob, { convId: own, message: "mine" });
  await until("the end", async () => (await plane.run(bob, own))?.status === "finished");
  const secret = await begun(server);
  for (const conv of shared) await plane.putParticipant(ada, conv, { subject: "bob", role: "viewer" });
  const all: (string | undefined)[] = [];
  let after = "";
  for (let page = 0; page < 4; page++) {
    const { conversations, next } = await plane.list(bob, { after, limit: 1 });
    all.push(...conversations.map(({ conv_id }) => conv_id));
    if (next === undefined) break;
    after = next;
  }
  expect(all).toEqual([own, ...shared.toReversed()]);
  expect(all).not.toContain(secret);
  expect((await plane.list(ada, { after: "", limit: 10 })).conversations).toHaveLength(3);
});
