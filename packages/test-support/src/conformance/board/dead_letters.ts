import { expect, test } from "vitest";
import type { Board } from "../../../../server/src/blackboard/board.ts";
import type { DeadLetter } from "../../../../server/src/blackboard/model/task.ts";
import {
  eventually,
  makeTestArtifact,
  newId,
  newName,
  numbered,
  type OpenBoard,
  range,
  rules,
  stage,
} from "./support.ts";
import { dead, done, failure, payloadOf, retry, start, Worker } from "./worker.ts";

const AGENTS = ["parked", "paged", "related", "mine", "yours", "at_once", "named"];

/** The promises of tasks that cannot succeed. */
export function deadLetterPromises(open: OpenBoard): void {
  const at = stage(
    open,
    AGENTS.map((agent) => rules(agent)),
  );

  const numbers = (letters: readonly DeadLetter[]) => letters.map(({ task }) => task && payloadOf(task));

  /** All pages, one after the other. */
  async function pages(board: Board, agent: string, limit: number): Promise<DeadLetter[][]> {
    const all: DeadLetter[][] = [];
    for (let after: string | undefined; ; ) {
      const page = await board.deadLetters(agent, { orgs: ["acme"], limit, ...(after && { after }) });
      all.push([...page.deadLetters]);
      if (page.next === undefined) return all;
      after = page.next;
    }
  }

  test("keeps a dead task with its error, attempts and origin, and runs the next task of its key", async () => {
    const { a, b, heard } = at();
    const key = newName("k");
    const worker = new Worker("parked", (task) => {
      if (payloadOf(task) !== 2) return done();
      return task.attempt < 3 ? retry(10, `failure ${task.attempt}`) : dead("the last failure");
    });
    await using _ = start(worker, a, b);
    const before = Date.now();
    const artifacts = numbered("parked", key, 4).map((each) => ({ ...each, correlation_id: newName("c") }));
    await a.publish(artifacts);
    await worker.ran(6);
    expect(worker.payloads(key).slice(0, 2)).toEqual([1, 2]);
    const { topic, partition, offset } = heard
      .settledBy("parked")
      .find(({ task }) => task.id === artifacts[1]!.id)!.place;
    for (const board of [a, b]) {
      await eventually(async () =>
        expect((await board.deadLetters("parked", { orgs: ["acme"], limit: 10 })).deadLetters).toHaveLength(
          1,
        ),
      );
      const [letter] = (await board.deadLetters("parked", { orgs: ["acme"], limit: 10 })).deadLetters;
      expect(letter).toMatchObject({
        agent: "parked",
        attempts: 3,
        failure: failure("fatal", "the last failure"),
        task: { id: artifacts[1]!.id, agent: "parked", key, artifacts: [artifacts[1]] },
        origin: `${topic}/${partition}@${offset}`,
      });
      expect(letter!.id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-/);
      expect(Date.parse(letter!.failed_at)).toBeGreaterThan(before - 1_000);
      expect(letter!.replay_id).toBeUndefined();
      expect((await board.deadLettersById("parked", ["acme"], [letter!.id]))[0]).toEqual(letter);
    }
  });

  test("makes a dead letter of a task that fails for good at its first attempt", async () => {
    const { a } = at();
    const worker = new Worker("at_once", () => dead("no"));
    await using _ = start(worker, a);
    await a.publish([makeTestArtifact({ to: "at_once" })]);
    await eventually(async () => {
      const { deadLetters } = await a.deadLetters("at_once", { orgs: ["acme"], limit: 10 });
      expect(deadLetters).toHaveLength(1);
      expect(deadLetters[0]).toMatchObject({ attempts: 1, failure: { message: "no", kind: "fatal" } });
    });
  });

  test("pages dead letters newest first, without repetition", async () => {
    const { a, b } = at();
    const worker = new Worker("paged", () => dead());
    await using _ = start(worker, a);
    await a.publish(numbered("paged", newName("k"), 13));
    await worker.ran(13);
    const all = range(1, 13).reverse();
    for (const board of [a, b]) {
      await eventually(async () =>
        expect(
          numbers((await board.deadLetters("paged", { orgs: ["acme"], limit: 100 })).deadLetters),
        ).toEqual(all),
      );
      for (const limit of [1, 5, 13, 14]) {
        const found = await pages(board, "paged", limit);
        expect(numbers(found.flat())).toEqual(all);
        expect(Math.max(...found.map((page) => page.length))).toBeLessThanOrEqual(limit);
        expect(new Set(found.flat().map(({ id }) => id)).size).toBe(13);
      }
    }
    const first = await a.deadLetters("paged", { orgs: ["acme"], limit: 5 });
    expect(first.next).toBeDefined();
    expect((await a.deadLetters("paged", { orgs: ["acme"], limit: 100 })).next).toBeUndefined();
    // Tasks that die meanwhile do not move the pages still to come.
    await a.publish([makeTestArtifact({ to: "paged", payload: 14 })]);
    await worker.ran(14);
    const second = await a.deadLetters("paged", { orgs: ["acme"], limit: 5, after: first.next! });
    expect(numbers(second.deadLetters)).toEqual(range(4, 8).reverse());
  });

  test("filters dead letters by correlation", async () => {
    const { a, b } = at();
    const worker = new Worker("related", () => dead());
    await using _ = start(worker, a, b);
    const [one, two] = [newName("c"), newName("c")];
    const key = newName("k");
    await a.publish(
      numbered("related", key, 10).map((each) => ({
        ...each,
        correlation_id: Number(each.payload) % 3 ? one : two,
      })),
    );
    await worker.ran(10);
    const of = async (name: string, limit = 100) =>
      numbers((await b.deadLetters("related", { orgs: ["acme"], limit, correlationId: name })).deadLetters);
    await eventually(async () => expect(await of(one)).toEqual([10, 8, 7, 5, 4, 2, 1]));
    await eventually(async () => expect(await of(two)).toEqual([9, 6, 3]));
    expect(await of(one, 2)).toEqual([10, 8]);
    expect(await of(newName("c"))).toEqual([]);
  });

  test("finds several dead letters by id, in the order of the ids", async () => {
    const { a, b } = at();
    const worker = new Worker("named", () => dead("no"));
    await using _ = start(worker, a);
    await a.publish(numbered("named", newName("k"), 30));
    const all: DeadLetter[] = [];
    await eventually(async () => {
      const { deadLetters } = await b.deadLetters("named", { orgs: ["acme"], limit: 100 });
      expect(deadLetters).toHaveLength(30);
      all.push(...deadLetters);
    });
    const wanted = all.filter((_, i) => i % 3 === 0).reverse();
    const ids = wanted.map(({ id }) => id);
    expect(await b.deadLettersById("named", ["acme"], [newId(), ...ids])).toEqual(wanted);
    expect(await b.deadLettersById("named", ["acme"], [])).toEqual([]);
  });

  test("keeps the dead letters of each agent apart, also of the same artifact", async () => {
    const { a, b } = at();
    const mine = new Worker("mine", () => dead("mine"));
    const yours = new Worker("yours", (task) => (payloadOf(task) === 1 ? dead("yours") : done()));
    await using _ = start(mine, a);
    await using __ = start(yours, b);
    await a.publish(numbered(["mine", "yours"], newName("k"), 2));
    await mine.ran(2);
    await yours.ran(2);
    const of = async (agent: string) =>
      (await a.deadLetters(agent, { orgs: ["acme"], limit: 10 })).deadLetters;
    await eventually(async () => expect(numbers(await of("mine"))).toEqual([2, 1]));
    await eventually(async () => expect(numbers(await of("yours"))).toEqual([1]));
    const [letter] = await of("yours");
    expect(letter!.failure.message).toBe("yours");
    const [, second] = await of("mine");
    const [found] = await a.deadLettersById("mine", ["acme"], [second!.id]);
    expect(found?.failure.message).toBe("mine");
  });
}
