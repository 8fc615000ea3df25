import { expect, test } from "vitest";
import type { Artifact } from "../../../../server/src/blackboard/model/artifact.ts";
import {
  eventually,
  makeTestArtifact,
  makeTestTask,
  newId,
  newName,
  numbered,
  type OpenBoard,
  rules,
  stage,
} from "./support.ts";
import { dead, done, payloadOf, start, Worker } from "./worker.ts";

const SIDE = rules("side", { order: "partition" });
const AGENTS = [SIDE, ...["twin", "told", "same", "doomed", "broken"].map((agent) => rules(agent))];

/** The promises to orgs that use the same names: neither notices the other. */
export function orgPromises(open: OpenBoard): void {
  const at = stage(open, AGENTS);
  const orgs = () => [newName("org"), newName("org")] as const;
  /** The same artifact in another org, with other content. */
  const ofOrg = (artifact: Artifact, org_id: string): Artifact => ({ ...artifact, org_id, payload: org_id });

  test("separates artifacts with the same id in two orgs, whatever their versions", async () => {
    const { a, b } = at();
    const [ours, theirs] = orgs();
    const first = ofOrg(makeTestArtifact(), ours);
    const forged = { ...ofOrg(first, theirs), version: 2 ** 31 - 1 };
    expect(await a.publish([first])).toEqual(["published"]);
    expect(await a.publish([forged])).toEqual(["published"]);
    expect(await a.publish([ofOrg(first, theirs), first])).toEqual([expect.anything(), "duplicate"]);
    const second = { ...first, version: 2 };
    expect(await a.publish([second])).toEqual(["published"]);
    for (const board of [a, b]) {
      await eventually(async () => expect(await board.get(ours, first.id)).toEqual(second));
      await eventually(async () => expect(await board.get(theirs, first.id)).toEqual(forged));
      expect(await board.get(newName("org"), first.id)).toBeUndefined();
      await eventually(async () =>
        expect((await board.recent({ org: ours, limit: 1 })).map(({ payload }) => payload)).toEqual([ours]),
      );
    }
    expect(await a.known(ours, [newId(), first.id])).toEqual([second]);
  });

  test("runs artifacts with the same id for each org, and keeps outputs with the same id apart", async () => {
    const { a, b } = at();
    const both = orgs();
    const one = makeTestArtifact({ to: "twin" });
    const output = makeTestArtifact();
    const worker = new Worker("twin", (task) => done(ofOrg(output, task.artifacts[0].org_id)));
    await using _ = start(worker, a, b);
    await a.publish(both.map((org) => ofOrg(one, org)));
    await worker.ran(2);
    expect(worker.payloads().sort()).toEqual([...both].sort());
    for (const org of both)
      await eventually(async () => expect(await b.get(org, output.id)).toEqual(ofOrg(output, org)));
  });

  test("enqueues tasks with the same id once per org", async () => {
    const { a } = at();
    const both = orgs();
    const one = makeTestArtifact();
    const worker = new Worker("told");
    await using _ = start(worker, a);
    const tasks = both.map((org) => makeTestTask("told", ofOrg(one, org), { replay_id: newId() }));
    await a.enqueue(tasks);
    await a.enqueue(tasks);
    await worker.ran(2);
    expect(worker.payloads().sort()).toEqual([...both].sort());
  });

  test.each([rules("same"), SIDE])(
    "a key of one org does not wait for the same key of another: %o",
    async (agent) => {
      const { a } = at();
      const [slow, quick] = orgs();
      const key = newName("k");
      const worker = new Worker(agent, async (task) => {
        if (task.artifacts[0].org_id === slow) await worker.released;
        return done();
      });
      // One process: a task whose partition moves in between would run twice.
      await using _ = start(worker, a);
      await a.publish(numbered(agent.agent, key, 3).map((each) => ({ ...each, org_id: slow })));
      await eventually(() => expect(worker.runs).toHaveLength(1));
      await a.publish(numbered(agent.agent, key, 3).map((each) => ({ ...each, org_id: quick })));
      await eventually(() => expect(worker.runs).toHaveLength(4));
      const of = (org: string) => worker.runs.filter(({ task }) => task.artifacts[0].org_id === org);
      expect(of(quick).map(({ task }) => payloadOf(task))).toEqual([1, 2, 3]);
      worker.release();
      await worker.ran(6);
      expect(of(slow).map(({ task }) => payloadOf(task))).toEqual([1, 2, 3]);
    },
  );

  test("lists and finds dead letters of one org only, even if two orgs have the same id", async () => {
    const { a, b } = at();
    const both = orgs();
    const one = makeTestArtifact({ breaks: "broken" });
    await a.publish(both.map((org) => ofOrg(one, org)));
    const worker = new Worker("doomed", () => dead());
    await using _ = start(worker, a);
    const other = makeTestArtifact({ to: "doomed" });
    await a.publish(both.map((org) => ofOrg(other, org)));
    await worker.ran(2);
    for (const agent of ["broken", "doomed"])
      for (const org of both) {
        const page = () => b.deadLetters(agent, { orgs: [org], limit: 10 });
        await eventually(async () => expect((await page()).deadLetters).toHaveLength(1));
        const [letter] = (await page()).deadLetters;
        expect(payloadOf(letter!.task!)).toBe(org);
        expect(await b.deadLettersById(agent, [org], [letter!.id])).toEqual([letter]);
        expect(await b.deadLettersById(agent, [newName("org")], [letter!.id])).toEqual([]);
      }
  });
}
