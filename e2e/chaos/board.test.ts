import type { Artifact } from "@khala/server";
import { eventually } from "@khala/test-support/kit/eventually";
import { until } from "@khala/test-support/kit/until";
import { noteOf } from "@khala/test-support/steps/board_world_rules";
import { describe, expect, test, vi } from "vitest";
import { BoardChaos } from "./support/board_world_chaos.ts";

// Processes start and stop here, on a machine that may have much else to do.
vi.setConfig({ testTimeout: 600_000 });

const AMOUNT = { keys: 50, each: 40 };
const LONG = { deadlineMs: 60_000 };

/** The artifacts of a type as the database has them, the oldest first. */
async function logged({ store }: BoardChaos, type: string): Promise<Artifact[]> {
  const rows = await store.database.query<{ body: string }>({
    text: "SELECT body FROM runtime.board_artifacts WHERE type = $1 ORDER BY seq",
    values: [type],
  });
  return rows.map(({ body }) => JSON.parse(body) as Artifact);
}

/** The tasks that somebody works on now, and who. */
async function claims({ store }: BoardChaos): Promise<Set<string>> {
  const rows = await store.database.query<{ claim: string }>({
    text: `SELECT seq || ' ' || claimed_by || ' ' || attempt AS claim FROM runtime.board_tasks
      WHERE claimed_by IS NOT NULL`,
  });
  return new Set(rows.map(({ claim }) => claim));
}

/** Tasks that are not settled. */
async function left({ store }: BoardChaos): Promise<number> {
  const [row] = await store.database.query<{ n: bigint }>({
    text: "SELECT count(*) AS n FROM runtime.board_tasks",
  });
  return Number(row!.n);
}

const runsOf = (runs: readonly string[], id: string) =>
  runs.filter((key) => key.startsWith(`${id}:bomb@`)).length;

/** A server that dies at the steps of what it does. */
interface Death {
  readonly what: string;
  /** How the server differs that takes what is published; without it the victim itself does. */
  readonly front?: Readonly<Record<string, string>>;
  readonly steps: readonly {
    /** A statement. */
    readonly name: string;
    readonly moment: "before" | "after";
    /** How often the agent runs. */
    readonly runs: number;
  }[];
}

async function drafts({ store }: BoardChaos): Promise<number> {
  const [row] = await store.database.query<{ n: bigint }>({
    text: "SELECT count(*) AS n FROM runtime.board_artifacts WHERE type = 'Draft'",
  });
  return Number(row!.n);
}

function written(chaos: BoardChaos, goal: number): Promise<unknown> {
  return until(`${goal} drafts`, async () => (await drafts(chaos)) >= goal, { deadlineMs: 120_000 });
}

/** Waits until so many more drafts are there, or all. */
async function progress(chaos: BoardChaos, more: number): Promise<void> {
  await written(chaos, Math.min((await drafts(chaos)) + more, AMOUNT.keys * AMOUNT.each));
}

describe("agents on Postgres", () => {
  test("settles 2,000 artifacts while servers are killed, suspended and replaced, and lose their database", async () => {
    await using chaos = await BoardChaos.open();
    for (let i = 0; i < 3; i++) await chaos.start();
    // Never all at once, so that there is something to spoil until the end.
    const published = chaos.publish(AMOUNT, (count) => written(chaos, count - 100));

    await progress(chaos, 100);
    await chaos.replace("SIGKILL");

    await progress(chaos, 100);
    const sleeper = chaos.take();
    sleeper.freeze();
    const held = await claims(chaos);
    const taken = async () => (await claims(chaos)).isDisjointFrom(held);
    await until("others have taken what it had", taken, { deadlineMs: 120_000 });
    sleeper.thaw();
    chaos.workers.push(sleeper);

    await progress(chaos, 100);
    await chaos.replace("SIGTERM");

    for (let i = 0; i < 3; i++) {
      await progress(chaos, 50);
      chaos.proxy.cut();
    }
    chaos.proxy.refuse();
    const [cutOff] = chaos.workers;
    await eventually("the servers have noticed", async () => {
      const response = await fetch(`${cutOff!.url}/readyz`);
      return response.status !== 200;
    });
    chaos.proxy.resume();

    await progress(chaos, 100);
    await chaos.replace("SIGKILL");
    await published;
    await chaos.replace("SIGKILL");
    await chaos.settled(AMOUNT);
    await chaos.check(AMOUNT, (type) => logged(chaos, type));
    expect(await claims(chaos)).toEqual(new Set());
    for (const worker of chaos.workers) expect(worker.running, worker.output()).toBe(true);
  });

  test("a process that dies around its side effect: the task runs again under the same key, with one visible output", async () => {
    await using chaos = await BoardChaos.open({ KHALA_BOARD_LEASE_MS: "4000" });
    const bombs = [{ moment: "before" }, { moment: "after" }];
    await chaos.front();
    const ids: string[] = [];
    let victim = await chaos.start();
    for (const [i, bomb] of bombs.entries()) {
      ids.push(await chaos.bomb(bomb));
      await until("it blew up", () => !victim.running, { deadlineMs: 60_000 });
      victim = await chaos.start();
      const craters = async () => (await logged(chaos, "Crater")).length;
      await until(`${i + 1} craters`, async () => (await craters()) > i, { deadlineMs: 60_000 });
    }
    await eventually("nothing is left to do", async () => {
      const { agents } = await chaos.insist<{ agents: { waiting: string; running: string }[] }>("/agents");
      return agents.every(({ waiting, running }) => waiting === "0" && running === "0");
    });
    const runs = await chaos.runs("bomb");
    expect(ids.map((id) => runsOf(runs, id))).toEqual([1, 2]);
    expect(runs).toHaveLength(3);
    expect(await logged(chaos, "Crater")).toHaveLength(bombs.length);
  });

  const DEATHS: readonly Death[] = [
    {
      what: "settles",
      front: { KHALA_BOARD_AGENTS: "off" },
      steps: [
        { name: "board_settle", moment: "before", runs: 2 },
        { name: "board_settle", moment: "after", runs: 1 },
      ],
    },
    {
      what: "publishes and routes",
      steps: [
        { name: "board_put", moment: "before", runs: 1 },
        { name: "board_put", moment: "after", runs: 1 },
      ],
    },
  ];
  test.for(DEATHS)(
    "a server that $what is killed at each step: a task is done or not, and another server finishes it",
    async ({ front, steps }) => {
      await using chaos = await BoardChaos.open({ KHALA_BOARD_LEASE_MS: "4000" });
      await using watchers = new AsyncDisposableStack();
      if (front) await chaos.front(front);
      const craters = (count: number) =>
        until(`${count} craters`, async () => (await logged(chaos, "Crater")).length >= count, LONG);
      const bombs: Promise<string>[] = [];
      for (const { name, moment } of steps) {
        const proxy = watchers.use(await chaos.watch());
        const victim = await chaos.start({ DATABASE_URL: proxy.through(chaos.store.url) });
        // It finishes what the one before has left.
        await craters(bombs.length);
        await Promise.all(bombs);
        const trap = proxy.trap({ name, moment, holds: "client" });
        bombs.push(chaos.bomb({}));
        await until(`${moment} ${name}`, () => trap.caught, LONG);
        chaos.take();
        await victim.end("SIGKILL");
      }
      await chaos.start();
      await craters(steps.length);
      await until("nothing is left to do", async () => (await left(chaos)) === 0, LONG);
      expect(await logged(chaos, "Crater")).toHaveLength(steps.length);
      const runs = await chaos.runs("bomb");
      const ids = await Promise.all(bombs);
      expect(ids.map((id) => runsOf(runs, id))).toEqual(steps.map((step) => step.runs));
    },
  );

  test("servers with many running tasks are killed: each task is taken over, with one visible output", async () => {
    await using chaos = await BoardChaos.open({
      KHALA_BOARD_LEASE_MS: "4000",
      KHALA_BOARD_CONCURRENCY: "100",
    });
    const rounds = 4;
    const [calls, size] = [5, 40];
    await chaos.front();
    let victim = await chaos.start();
    const pressed = async () => (await logged(chaos, "Pressed")).map((artifact) => noteOf(artifact).n);
    let published = 0;
    for (let round = 0; round < rounds; round++) {
      for (let call = 0; call < calls; call++, published += size) await chaos.leaves(published, size);
      // Some have come to their end, and others have not.
      await until(
        "some are worked on",
        async () => (await claims(chaos)).size > 0 && (await pressed()).length > 0,
        { deadlineMs: 60_000 },
      );
      chaos.take();
      await victim.end("SIGKILL");
      victim = await chaos.start(round < rounds - 1 ? {} : { BOARD_LASTS: "off" });
    }
    const all = Array.from({ length: published }, (_, n) => n);
    await until("every leaf is pressed", async () => (await pressed()).length >= published, {
      deadlineMs: 240_000,
    });
    await eventually("nothing is left to do", async () => {
      const { agents } = await chaos.insist<{ agents: { waiting: string; running: string }[] }>("/agents");
      return agents.every(({ waiting, running }) => waiting === "0" && running === "0");
    });
    expect((await pressed()).toSorted((a, b) => a - b)).toEqual(all);
    expect(new Set(await chaos.runs("presser")).size).toBe(published);
    expect(await left(chaos)).toBe(0);
    expect(await claims(chaos)).toEqual(new Set());
    expect(await chaos.insist("/dead-letters/presser?limit=10")).toMatchObject({ dead_letters: [] });
  });
});
