import { readdir, stat, truncate } from "node:fs/promises";
import { join } from "node:path";
import { eventually } from "@khala/test-support/kit/eventually";
import { startTcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { redisHere } from "@khala/test-support/redis/redis";
import type { GatewayProcess } from "@khala/test-support/servers/gateways";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ConversationChaos, SHORT_LEASE } from "./support/conversation_chaos.ts";
import type { Device } from "./support/conversation_chaos_device.ts";

// Processes start and stop here, on a machine that may have much else to do.
vi.setConfig({ testTimeout: 90_000 });

const backends: ("postgres" | "redis")[] = redisHere().own ? ["postgres", "redis"] : ["postgres"];
let chaos: ConversationChaos;
afterEach(() => chaos[Symbol.asyncDispose]());

/** A proxy to where a URL points, and the URL through it. */
async function lineTo(url: string) {
  const { hostname: host, port } = new URL(url);
  const proxy = await startTcpProxy({ host, port: Number(port) });
  return { proxy, url: proxy.through(url) };
}

/** Whether some of these devices have more of their conversation than others. */
function ahead(some: readonly Device[], others: readonly Device[]): boolean {
  return some.some(({ seq }) => others.every((other) => other.seq < seq));
}

describe.each(backends)("two servers with conversations on %s", (backend) => {
  beforeEach(async () => {
    chaos = await ConversationChaos.open(backend);
  });

  test("a broken connection between an append and its answer loses and repeats no word", async () => {
    const log = await lineTo(chaos.redis?.url ?? chaos.store.url);
    await using line = log.proxy;
    const [near, far] = await chaos.two({ [chaos.redis ? "REDIS_URL" : "DATABASE_URL"]: log.url }, {});
    const runs = await chaos.talk(near);
    for (let round = 0; round < 2; round++) {
      line.pause("answers");
      await eventually("something is in the log of which its writer does not know", () =>
        chaos.conversations.some(({ devices }) => {
          const on = ({ url }: GatewayProcess) => devices.filter((device) => device.url === url);
          return ahead(on(far), on(near));
        }),
      );
      line.cut();
      line.resume();
      await chaos.grow();
    }
    for (const [conversation] of runs) await conversation.stop(far);
    await chaos.ended(runs, "stopped");
    await chaos.agree(near, far);
  });

  test("a server without its database for too long loses its runs, and writes no more of them", async () => {
    const database = await lineTo(chaos.store.url);
    await using line = database.proxy;
    const [cutOff, other] = await chaos.two({ ...SHORT_LEASE, DATABASE_URL: database.url }, SHORT_LEASE);
    const runs = await chaos.talk(cutOff);
    line.refuse();
    await chaos.written(runs, "server_lost");
    await chaos.say([other], "Count to 5").then((more) => chaos.written(more, "finished"));
    line.resume();
    await chaos.ended(runs, "server_lost");
    await chaos.agree(other, cutOff);
  });
});

describe.runIf(redisHere().own)("two servers whose Redis fails during answers", () => {
  beforeEach(async () => {
    chaos = await ConversationChaos.open("redis");
  });

  test("killed and restarted on its file: answers continue, and every client has the log's text", async () => {
    const servers = await chaos.two();
    const runs = await chaos.talk(...servers);
    for (let round = 0; round < 2; round++) {
      await chaos.redis!.kill();
      await chaos.redis!.restart();
      await chaos.grow();
    }
    for (const [conversation] of runs) await conversation.stop(servers[0]);
    await chaos.ended(runs, "stopped");
    await chaos.agree(...servers);
  });

  test("clients drop entries that it lost in a crash, also those that reconnect later", async () => {
    const servers = await chaos.two();
    const runs = await chaos.talk(...servers);
    const away = chaos.conversations.map(({ devices }) => devices[0]!);
    await Promise.all(away.map((device) => device.stop()));
    await chaos.redis!.kill();
    await loseTheEnd(chaos.redis!.dir);
    await chaos.redis!.restart();
    const here = chaos.devices.filter((device) => !away.includes(device));
    const before = new Map(here.map((device) => [device, device.length]));
    await eventually("those who stayed hear more", () =>
      here.every((device) => device.length > before.get(device)! + 40),
    );
    for (const device of away) device.start();
    for (const [conversation] of runs) await conversation.stop(servers[0]);
    await chaos.agree(...servers);
    expect(chaos.devices.some(({ resyncs }) => resyncs.length > 0)).toBe(true);
  });
});

/** Removes what a power cut takes away: the end of the file that was not on the disk yet. */
async function loseTheEnd(dir: string): Promise<void> {
  const names = (await readdir(dir, { recursive: true })).filter((name) => /(incr|only)\.aof$/.test(name));
  expect(names).toHaveLength(1);
  const file = join(dir, names[0]!);
  const { size } = await stat(file);
  await truncate(file, Math.floor(size * 0.9));
}
