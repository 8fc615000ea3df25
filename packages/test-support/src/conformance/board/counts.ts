import { expect, test } from "vitest";
import type { Board } from "../../../../server/src/blackboard/board.ts";
import {
  eventually,
  makeTestArtifact,
  newName,
  numbered,
  type OpenBoard,
  range,
  rules,
  stage,
} from "./support.ts";
import { dead, done, payloadOf, retry, start, Worker } from "./worker.ts";

const AGENTS = ["counted", "lagging", "related", "output", "idle", "later", "failing", "namesake", "owned"];

/** The promises of the figures shown to people. */
export function countPromises(open: OpenBoard): void {
  const at = stage(
    open,
    AGENTS.map((agent) => rules(agent)),
  );

  const countsOf = async (board: Board, agent: string) =>
    (await board.counts()).find((each) => each.agent === agent);
  const lagOf = async (board: Board, reader: string, which: "lag" | "lag_high" = "lag") =>
    (await board.lag())
      .filter((each) => each.reader === reader)
      .reduce((sum, each) => sum + Number(each[which] ?? 0), 0);

  test("counts an agent's waiting, running and dead tasks", async () => {
    const { a } = at();
    const worker = new Worker(
      "counted",
      async (task) => {
        await worker.released;
        return Number(payloadOf(task)) <= 3 ? dead() : done();
      },
      2,
    );
    await a.publish(range(1, 10).map((payload) => makeTestArtifact({ to: "counted", payload })));
    const numbers = { agent: "counted", waiting: 10, running: 0, dead: 0 };
    await eventually(async () => expect(await countsOf(a, "counted")).toEqual(numbers));
    await using _ = start(worker, a);
    await eventually(async () =>
      expect(await countsOf(a, "counted")).toEqual({ ...numbers, waiting: 8, running: 2 }),
    );
    worker.release();
    await worker.ran(10);
    await eventually(async () =>
      expect(await countsOf(a, "counted")).toEqual({ ...numbers, waiting: 0, dead: 3 }),
    );
  });

  test("counts a task that waits for its retry as waiting", async () => {
    const { a } = at();
    const worker = new Worker("later", () => retry(3_600_000));
    await using _ = start(worker, a);
    await a.publish(numbered("later", newName("k"), 3));
    await worker.ran(3);
    await eventually(async () =>
      expect(await countsOf(a, "later")).toMatchObject({ waiting: 3, running: 0 }),
    );
  });

  test("counts the open tasks of an org per agent", async () => {
    const { a, under } = at();
    const org = newName("org");
    const other = newName("org");
    const waiting = async (of: string) => (await a.waiting(of)).get("owned") ?? 0;
    const ofOrgs = async () => a.countsOf([org, other].map((each) => ({ agent: "owned", org: each })));
    const lag = async (of: string) =>
      (await a.lag(of)).reduce((sum, each) => sum + (each.reader === "owned" ? Number(each.lag) : 0), 0);
    await a.publish(range(1, 4).map(() => makeTestArtifact({ to: "owned", org_id: org })));
    await eventually(async () => expect((await ofOrgs())[0]).toMatchObject({ agent: "owned", waiting: 4 }));
    // Orgs share the partitions of Kafka, so there the tasks of all orgs are counted.
    expect((await ofOrgs())[1]).toMatchObject({ waiting: under.countsOrgs ? 0 : 4 });
    expect([await waiting(org), await waiting(other)]).toEqual([4, 0]);
    expect([await lag(org), await lag(other)]).toEqual(under.countsOrgs ? [4, 0] : [4, 4]);
    const worker = new Worker("owned", () => dead());
    await using _ = start(worker, a);
    await worker.ran(4);
    await eventually(async () => {
      expect(await ofOrgs()).toEqual([
        { agent: "owned", waiting: 0, running: 0, dead: 4 },
        { agent: "owned", waiting: 0, running: 0, dead: 0 },
      ]);
      expect(await waiting(org)).toBe(0);
    });
  });

  test("counts an idle agent as zero", async () => {
    const { a, b } = at();
    for (const board of [a, b])
      await eventually(async () =>
        expect(await countsOf(board, "idle")).toEqual({ agent: "idle", waiting: 0, running: 0, dead: 0 }),
      );
  });

  test("reports as lag what an agent has not worked on, and no lag at the end", async () => {
    const { a, b } = at();
    await a.publish(range(1, 25).map((payload) => makeTestArtifact({ to: "lagging", payload })));
    await eventually(async () => expect(await lagOf(b, "lagging")).toBeGreaterThanOrEqual(25));
    expect(await lagOf(b, "lagging", "lag_high")).toBeGreaterThanOrEqual(25);
    for (const { reader, topic, partition } of await b.lag())
      expect({ reader, topic, partition }).toEqual({
        reader: expect.stringMatching(/./),
        topic: expect.stringMatching(/./),
        partition: expect.any(Number),
      });
    const worker = new Worker("lagging");
    await using _ = start(worker, a, b);
    await worker.ran(25);
    await eventually(async () => expect(await lagOf(b, "lagging")).toBe(0));
    await eventually(async () => expect(await lagOf(b, "router")).toBe(0));
    expect(await lagOf(b, "idle")).toBe(0);
  });

  test("counts a correlation's artifacts and its open, done and dead tasks", async () => {
    const { a, b } = at();
    const correlation_id = newName("c");
    const org_id = newName("org");
    const worker = new Worker("related", async (task) => {
      await worker.released;
      const { payload } = task.artifacts[0];
      if (payload === 1) return dead();
      if (payload === 2 && task.attempt === 1) return retry(10);
      return done(makeTestArtifact({ to: "output", correlation_id, org_id, depth: 1 }));
    });
    const output = new Worker("output");
    await using _ = start(worker, a, b);
    await using __ = start(output, a);
    await a.publish(
      numbered("related", newName("k"), 5).map((each) => ({ ...each, correlation_id, org_id })),
    );
    const numbers = { correlationId: correlation_id, org: org_id, retrying: 0 };
    const name = { org: org_id, name: correlation_id };
    const counts = () => b.correlations([name]);
    await eventually(async () =>
      expect(await counts()).toEqual([{ ...numbers, artifacts: 5, open: 5, done: 0, dead: 0 }]),
    );
    worker.release();
    await output.ran(4);
    await eventually(async () =>
      expect(await counts()).toEqual([{ ...numbers, artifacts: 9, open: 0, done: 8, dead: 1 }]),
    );
    await eventually(async () => expect(await a.correlations([name])).toEqual(await counts()));
  });

  test("counts a correlation's tasks that wait for a retry, however long the delay", async () => {
    const { under, a, b } = at();
    const correlation_id = newName("c");
    const counts = async () => (await b.correlations([{ org: "acme", name: correlation_id }]))[0];
    await counts();
    // One delay shorter than any retry tier, one longer than most; repeated, so that a slow test can see it.
    const failing = new Set([1, 2]);
    const worker = new Worker("failing", (task) => {
      const number = payloadOf(task) as number;
      if (!failing.has(number)) return done();
      return retry(number === 1 ? 900 : 5_000);
    });
    await using _ = start(worker, a);
    await a.publish(numbered("failing", newName("k"), 2).map((each) => ({ ...each, correlation_id })));
    await eventually(async () => expect(await counts()).toMatchObject({ open: 2, retrying: 2, done: 0 }));
    failing.delete(1);
    await eventually(async () => expect(await counts()).toMatchObject({ open: 1, retrying: 1, done: 1 }));
    failing.delete(2);
    await under.jump?.(5_000);
    await eventually(async () => expect(await counts()).toMatchObject({ open: 0, retrying: 0, done: 2 }));
  });

  test("separates the counts of two orgs' correlations with the same name", async () => {
    const { a, b } = at();
    const correlation_id = newName("c");
    const [ours, theirs] = [newName("org"), newName("org")];
    const worker = new Worker("namesake", (task) => {
      const { org_id } = task.artifacts[0];
      if (org_id === ours) return payloadOf(task) === 1 ? dead() : done();
      return retry(60_000);
    });
    await using _ = start(worker, a);
    const counts = async () =>
      (await b.correlations([theirs, ours].map((org) => ({ org, name: correlation_id })))).map(
        ({ org, artifacts, open, done, dead }) => ({ org, artifacts, open, done, dead }),
      );
    await a.publish([
      ...numbered("namesake", newName("k"), 3).map((each) => ({ ...each, correlation_id, org_id: ours })),
      ...numbered("namesake", newName("k"), 2).map((each) => ({ ...each, correlation_id, org_id: theirs })),
    ]);
    await eventually(async () =>
      expect(await counts()).toEqual([
        { org: theirs, artifacts: 2, open: 2, done: 0, dead: 0 },
        { org: ours, artifacts: 3, open: 0, done: 2, dead: 1 },
      ]),
    );
    const letters = async (org: string) =>
      (await b.deadLetters("namesake", { orgs: [org], limit: 100, correlationId: correlation_id }))
        .deadLetters;
    await eventually(async () => expect(await letters(ours)).toHaveLength(1));
    expect(await letters(theirs)).toEqual([]);
  });

  test("returns the known correlations of a request, and skips unknown ones", async () => {
    const { a } = at();
    const ids = range(1, 3).map(() => newName("c"));
    await a.publish(ids.map((correlation_id) => makeTestArtifact({ correlation_id })));
    await eventually(async () => {
      const found = await a.correlations([newName("c"), ...ids].map((name) => ({ org: "acme", name })));
      expect(found.map(({ correlationId }) => correlationId).toSorted()).toEqual(ids.toSorted());
      expect(found.every((each) => each.artifacts === 1 && each.open === 0)).toBe(true);
    });
    expect(await a.correlations([])).toEqual([]);
  });
}
