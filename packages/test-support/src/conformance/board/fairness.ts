import { setImmediate } from "node:timers/promises";
import { expect, test } from "vitest";
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
import { done, start, Worker } from "./worker.ts";

const CALM = range(1, 8).map((n) => `calm${n}`);
const MANY = 200;

/** The promises to agents and keys with little work beside others with endless work. */
export function fairnessPromises(open: OpenBoard): void {
  const at = stage(
    open,
    ["heavy", "greedy", ...CALM].map((agent) => rules(agent)),
  );

  test("a key with endless work does not block other keys, even with few slots", async () => {
    const { a, b, heard } = at();
    const heavy = newName("k");
    let isEndless = true;
    const worker = new Worker(
      "heavy",
      async (task) => {
        await setImmediate();
        return task.key === heavy && isEndless
          ? done(makeTestArtifact({ to: "heavy", partition_key: heavy }))
          : done();
      },
      2,
    );
    await using _ = start(worker, a, b);
    await a.publish(numbered("heavy", heavy, MANY));
    await eventually(() => expect(worker.payloads(heavy).length).toBeGreaterThan(0));
    const light = range(1, 20).map(() => newName("k"));
    for (const key of light) await b.publish(numbered("heavy", key, 3));
    for (const key of light)
      await eventually(() =>
        expect(heard.settledBy("heavy").filter(({ task }) => task.key === key)).toHaveLength(3),
      );
    for (const key of light) expect(worker.payloads(key)).toEqual([1, 2, 3]);
    const before = worker.payloads(heavy).length;
    await eventually(() => expect(worker.payloads(heavy).length).toBeGreaterThan(before));
    isEndless = false;
  });

  test("an agent with endless work does not block other agents of its process", async () => {
    const { a } = at();
    let isEndless = true;
    const greedy = new Worker(
      "greedy",
      async () => {
        await setImmediate();
        return isEndless ? done(makeTestArtifact({ to: "greedy" })) : done();
      },
      20,
    );
    await using _ = start(greedy, a);
    await a.publish(range(1, MANY).map((payload) => makeTestArtifact({ to: "greedy", payload })));
    await eventually(() => expect(greedy.runs.length).toBeGreaterThan(0));
    await using calm = new AsyncDisposableStack();
    const workers = CALM.map((agent) => new Worker(agent));
    for (const worker of workers) calm.use(start(worker, a));
    for (const agent of CALM) await a.publish(numbered(agent, newName("k"), 5));
    for (const worker of workers) await eventually(() => expect(worker.payloads()).toEqual(range(1, 5)));
    const before = greedy.runs.length;
    await eventually(() => expect(greedy.runs.length).toBeGreaterThan(before));
    isEndless = false;
  });
}
