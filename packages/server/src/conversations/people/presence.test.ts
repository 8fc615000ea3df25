import { testContext } from "@khala/test-support/kit/context";
import { ManualClock } from "@khala/test-support/kit/manual_clock";
import { expect, test } from "vitest";
import { openPresence, PRESENCE_WAKEUP, type Presence } from "./presence.ts";
import { encodeAnnouncement, parseAnnouncement } from "./presence_wire.ts";

const CONV = { org: "acme", convId: "c1" };

/** Servers whose wakeups reach each other. */
async function openServers(count: number) {
  const clock = new ManualClock();
  const context = await testContext({ clock });
  const sent: string[] = [];
  const dead = new Set<number>();
  const servers: Presence[] = [];
  for (let i = 0; i < count; i++) {
    const send = (name: string) => {
      sent.push(name);
      if (dead.has(i)) return;
      servers.forEach((other, j) => {
        if (j !== i && !dead.has(j)) other.onWakeup(name.slice(PRESENCE_WAKEUP.length));
      });
    };
    servers.push(openPresence(context, { serverId: `s${i}`, send }));
  }
  return { clock, servers, sent, dead, stop: () => Promise.all(servers.map((server) => server.stop())) };
}

function socket(server: Presence, subject: string, device: string, conversation = CONV) {
  const frames: string[] = [];
  const place = server.join(conversation, {
    subject,
    device,
    offer: ({ json }) => {
      const { present } = JSON.parse(json) as {
        present: { subject: string; device: string; typing: boolean }[];
      };
      frames.push(present.map((of) => `${of.subject}@${of.device}${of.typing ? " types" : ""}`).join());
    },
  });
  return { ...place, frames, last: () => frames.at(-1) };
}

test("everybody sees who is connected, on which device and server, and who leaves", async () => {
  const { servers, stop, clock } = await openServers(2);
  const laptop = socket(servers[0]!, "ada", "laptop");
  expect(laptop.frames).toEqual(["ada@laptop"]);
  const phone = socket(servers[1]!, "ada", "phone");
  // The second server asks the first one, so its first list is complete or completed at once.
  expect(phone.last()).toBe("ada@laptop,ada@phone");
  expect(laptop.last()).toBe("ada@laptop,ada@phone");
  await clock.advance(300);
  const bob = socket(servers[1]!, "bob", "tablet");
  await clock.advance(300);
  for (const { last } of [laptop, phone, bob]) expect(last()).toBe("ada@laptop,ada@phone,bob@tablet");
  phone.leave();
  await clock.advance(300);
  bob.leave();
  await clock.advance(300);
  expect(laptop.last()).toBe("ada@laptop");
  await stop();
});

test("does not mix another org's conversation with the same id", async () => {
  const { servers, stop } = await openServers(2);
  const ada = socket(servers[0]!, "ada", "a");
  const eve = socket(servers[1]!, "eve", "e", { ...CONV, org: "globex" });
  expect([ada.last(), eve.last()]).toEqual(["ada@a", "eve@e"]);
  await stop();
});

test("shows typing everywhere, until it is stopped or not repeated", async () => {
  const { servers, stop, clock } = await openServers(2);
  const [ada, bob] = [socket(servers[0]!, "ada", "a"), socket(servers[1]!, "bob", "b")];
  await clock.advance(300);
  ada.typing(true);
  expect([ada.last(), bob.last()]).toEqual(["ada@a types,bob@b", "ada@a types,bob@b"]);
  await clock.advance(300);
  ada.typing(false);
  expect(bob.last()).toBe("ada@a,bob@b");
  await clock.advance(300);
  ada.typing(true);
  await clock.advance(5_000);
  ada.typing(true);
  await clock.advance(5_000);
  expect(bob.last()).toBe("ada@a types,bob@b");
  await clock.advance(3_000);
  expect([ada.last(), bob.last()]).toEqual(["ada@a,bob@b", "ada@a,bob@b"]);
  await stop();
});

test("announces a flood of changes a few times a second", async () => {
  const { servers, stop, clock, sent } = await openServers(1);
  const ada = socket(servers[0]!, "ada", "a");
  const before = sent.length;
  for (let i = 0; i < 1_000; i++) {
    ada.typing(i % 2 === 0);
    await clock.advance(1);
  }
  expect(sent.length - before).toBeLessThan(10);
  await stop();
});

test("removes the users of a dead server within seconds, and keeps those of a live one", async () => {
  const { servers, stop, clock, dead } = await openServers(3);
  const ada = socket(servers[0]!, "ada", "a");
  socket(servers[1]!, "bob", "b");
  socket(servers[2]!, "cy", "c");
  await clock.advance(60_000);
  expect(ada.last()).toBe("ada@a,bob@b,cy@c");
  dead.add(1);
  await clock.advance(20_000);
  expect(ada.last()).toBe("ada@a,cy@c");
  // A server that stops announces it at once.
  await servers[2]!.stop();
  expect(ada.last()).toBe("ada@a");
  await stop();
});

test("an announcement is ASCII of a bounded size, whatever the names of its users", () => {
  const present = Array.from({ length: 200 }, (_, i) => ({
    subject: `${i}ü\n\u0000😀`,
    device: "d",
    typing: true,
  }));
  const text = encodeAnnouncement({ ...CONV, server: "s", n: 1, asks: true, present });
  expect(text).toMatch(/^[\x20-\x7e]{1,3000}$/);
  const read = parseAnnouncement(text)!;
  expect(read.present).toEqual(present.slice(0, read.present.length));
  expect(read.present.length).toBeGreaterThan(20);
  for (const other of ["", "{", "[]", "null", "[1,2]"]) expect(parseAnnouncement(other)).toBeUndefined();
});
