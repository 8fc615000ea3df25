import { randomUUID } from "node:crypto";
import { eventually } from "@khala/test-support/kit/eventually";
import { redisHere } from "@khala/test-support/redis/redis";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ConversationChaos, SHORT_LEASE } from "./support/conversation_chaos.ts";

// Processes start and stop here, on a machine that may have much else to do.
vi.setConfig({ testTimeout: 90_000 });

const backends: ("postgres" | "redis")[] = redisHere().own ? ["postgres", "redis"] : ["postgres"];

describe.each(backends)("two servers with conversations on %s", (backend) => {
  let chaos: ConversationChaos;

  beforeEach(async () => {
    chaos = await ConversationChaos.open(backend);
  });

  afterEach(() => chaos[Symbol.asyncDispose]());

  test("a server killed during answers: the other ends them, and nobody misses a word", async () => {
    const [doomed, other] = await chaos.two(SHORT_LEASE);
    const runs = await chaos.talk(doomed);
    await doomed.end("SIGKILL");
    const waiting = await chaos.say([other], "Count to 5", { policy: "queue" });
    await chaos.ended(runs, "server_lost");
    await chaos.ended(waiting, "finished");
    expect(chaos.on(other)).toHaveLength(200);
    await chaos.agree(other);
  });

  test("a server suspended past its lease writes nothing when it wakes, and its sockets catch up", async () => {
    const [sleeper, other] = await chaos.two(SHORT_LEASE);
    const runs = await chaos.talk(sleeper);
    const asleep = chaos.on(sleeper);
    sleeper.freeze();
    await chaos.written(runs, "server_lost");
    expect(asleep.filter(({ ends }) => ends.size > 0)).toEqual([]);
    const meanwhile = await chaos.say([other], "Count to 5");
    await chaos.written(meanwhile, "finished");
    sleeper.thaw();
    await eventually("it has found out that its runs were taken", async () => {
      const text = await (await fetch(`${sleeper.url}/metrics`)).text();
      return text.includes('khala_conversation_runs_total{outcome="lost"} 20');
    });
    await chaos.ended(runs, "server_lost");
    await chaos.ended(meanwhile, "finished");
    await chaos.agree(sleeper, other);
  });

  test("a stop on one server ends answers of the other, and a message sent to both starts one run", async () => {
    const [one, other] = await chaos.two();
    const runs = await chaos.talk(one);
    for (const [conversation, run_id] of runs)
      expect(await conversation.stop(other)).toEqual({ run_id, stopped: true });
    await chaos.ended(runs, "stopped");
    await Promise.all(
      chaos.conversations.map(async (each) => {
        const key = { idempotency_key: randomUUID() };
        const [here, there] = await Promise.all([
          each.send(one, "Count to 4", key),
          each.send(other, "Count to 4", key),
        ]);
        expect(here).toEqual(there);
        await chaos.ended(new Map([[each, here.run_id]]), "finished");
      }),
    );
    await chaos.agree(one, other);
  });

  test("a server that shuts down ends its answers, closes its sockets with 1012, and exits", async () => {
    const [leaving, other] = await chaos.two();
    const runs = await chaos.talk(leaving, other);
    const moved = chaos.on(leaving);
    await leaving.end("SIGTERM");
    expect(leaving.ending).toBe(0);
    const its = new Map([...runs].filter((_, i) => i % 2 === 0));
    await chaos.ended(its, "server_lost");
    await chaos.all("is on the other server", ({ url }) => url === other.url);
    for (const { closes } of moved) expect(closes[0]).toEqual({ url: leaving.url, code: 1012 });
    for (const [conversation] of [...runs].filter((_, i) => i % 2 === 1)) await conversation.stop(other);
    await chaos.agree(other);
  });
});
