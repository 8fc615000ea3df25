import { expect, test } from "vitest";
import type { Board } from "../../../../server/src/blackboard/board.ts";
import type { Artifact } from "../../../../server/src/blackboard/model/artifact.ts";
import {
  caughtUp,
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
import { start, Worker } from "./worker.ts";

/** The promises of publishing and of lookups. */
export function publishPromises(open: OpenBoard): void {
  const at = stage(
    open,
    ["once", "whole"].map((agent) => rules(agent)),
  );

  const has = (board: Board, artifact: Artifact) =>
    eventually(async () => expect(await board.get(artifact.org_id, artifact.id)).toEqual(artifact));

  test("returns a published artifact unchanged in every process", async () => {
    const { a, b, heard } = at();
    const full = makeTestArtifact({
      type: "Review",
      payload: { text: "fine", points: [1, 2.5, true, null] },
      correlation_id: newName("c"),
      partition_key: newName("k"),
      tags: ["urgent", "de"],
      produced_by: "agent:reviewer",
      visibility: { kind: "labelled", labels: ["legal"] },
      version: 3,
      traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
      depth: 4,
    });
    const plain = makeTestArtifact({ org_id: "zeta" });
    expect(await a.publish([full, plain])).toEqual(["published", "published"]);
    for (const board of [a, b]) for (const each of [full, plain]) await has(board, each);
    expect(heard.publications).toEqual(expect.arrayContaining([full, plain]));
  });

  test("finds nothing under an unknown id, and accepts an empty publication", async () => {
    const { a } = at();
    expect(await a.get("acme", newId())).toBeUndefined();
    expect(await a.publish([])).toEqual([]);
  });

  test("answers a known id and version with duplicate in any process, and runs it once", async () => {
    const { a, b } = at();
    const worker = new Worker("once");
    await using _ = start(worker, a);
    const [first, second, third] = numbered("once", newName("k"), 3) as [Artifact, Artifact, Artifact];
    expect(await a.publish([first])).toEqual(["published"]);
    await has(b, first);
    expect(await b.publish([second, first])).toEqual(["published", "duplicate"]);
    await has(a, second);
    expect(await a.publish([first, second, third])).toEqual(["duplicate", "duplicate", "published"]);
    await worker.ran(3);
    expect(worker.payloads()).toEqual([1, 2, 3]);
  });

  test("a repeated publication with a later time and another trace is a duplicate", async () => {
    const { a } = at();
    const first = makeTestArtifact({ payload: { n: 1 } });
    await a.publish([first]);
    await has(a, first);
    const created_at = new Date(Date.parse(first.created_at) + 5_000).toISOString();
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    expect(await a.publish([{ ...first, created_at, traceparent }])).toEqual(["duplicate"]);
    expect(await a.get(first.org_id, first.id)).toEqual(first);
  });

  test("publishes the same artifact of one call once", async () => {
    const { a } = at();
    const artifact = makeTestArtifact({ payload: "twice" });
    expect(await a.publish([artifact, artifact])).toEqual(["published", "duplicate"]);
    await has(a, artifact);
  });

  test("refuses other content under a known id and version, and keeps the first", async ({ skip }) => {
    const { under, a, b } = at();
    skip(!under.conflicts, "This driver takes it for a duplicate.");
    const first = makeTestArtifact({ payload: { n: 1 } });
    await a.publish([first]);
    for (const board of [a, b]) {
      await has(board, first);
      await expect(board.publish([{ ...first, payload: { n: 2 } }])).rejects.toMatchObject({
        code: "artifact_conflict",
        message: expect.stringContaining(first.id),
      });
      expect(await board.get(first.org_id, first.id)).toEqual(first);
    }
  });

  test("publishes all artifacts of a call or none", async ({ skip }) => {
    const { under, a, b, heard } = at();
    skip(!under.conflicts && !under.maxBytes, "This driver refuses nothing.");
    const key = newName("k");
    const taken = makeTestArtifact({ partition_key: key, payload: 0 });
    await a.publish([taken]);
    await has(a, taken);
    const bad = under.conflicts
      ? { ...taken, payload: 1 }
      : makeTestArtifact({ partition_key: key, payload: "x".repeat(2 * under.maxBytes!) });
    const fresh = range(1, 5).flatMap(() => numbered("whole", key, 1));
    await expect(a.publish([...fresh.slice(0, 3), bad, ...fresh.slice(3)])).rejects.toThrow();
    await caughtUp(at(), [a, b], key);
    for (const { id } of fresh) {
      expect(await a.get("acme", id)).toBeUndefined();
      expect(await b.get("acme", id)).toBeUndefined();
      expect(heard.routings.some(({ artifact }) => artifact.id === id)).toBe(false);
    }
    expect(await a.publish(fresh)).toEqual(fresh.map(() => "published"));
    const worker = new Worker("whole");
    await using _ = start(worker, b);
    await worker.ran(5);
  });

  test("returns the newest version, also when an older one arrives later", async () => {
    const { a, b } = at();
    const key = newName("k");
    const first = makeTestArtifact({ partition_key: key, payload: "first" });
    const version = (number: number): Artifact => ({
      ...first,
      version: number,
      payload: `version ${number}`,
    });
    expect(await a.publish([first])).toEqual(["published"]);
    expect(await a.publish([version(3)])).toEqual(["published"]);
    await has(b, version(3));
    await b.publish([version(2)]);
    await caughtUp(at(), [a, b], key);
    expect(await a.get(first.org_id, first.id)).toEqual(version(3));
    expect(await b.get(first.org_id, first.id)).toEqual(version(3));
  });

  test("a process that starts finds earlier artifacts at once", async () => {
    const { a, open } = at();
    const key = newName("k");
    const artifacts = numbered([], key, 50);
    const newer = { ...artifacts[7]!, version: 2, payload: "newer" };
    await a.publish(artifacts);
    await a.publish([newer]);
    await caughtUp(at(), [a], key);
    const late = await open();
    expect(await late.get("acme", artifacts[0]!.id)).toEqual(artifacts[0]);
    expect(await late.get("acme", artifacts[49]!.id)).toEqual(artifacts[49]);
    expect(await late.get("acme", newer.id)).toEqual(newer);
    expect(await late.publish([artifacts[3]!])).toEqual(["duplicate"]);
    await late.stop();
  });

  test("lists recent artifacts newest first, up to the limit, by org and type", async () => {
    const { a, b } = at();
    const [org_id, partition_key] = [newName("org"), newName("k")];
    const published: Artifact[] = [];
    for (const payload of range(1, 12)) {
      const type = payload % 3 === 0 ? "Fizz" : "Buzz";
      const each = makeTestArtifact({ type, payload, org_id, partition_key });
      await a.publish([each, makeTestArtifact({ type, org_id: `${org_id}-other`, partition_key })]);
      published.unshift(each);
    }
    for (const board of [a, b]) {
      await eventually(async () =>
        expect(await board.recent({ org: org_id, limit: 100 })).toEqual(published),
      );
      expect(await board.recent({ org: org_id, limit: 1 })).toEqual([published[0]]);
      expect(await board.recent({ org: org_id, limit: 5 })).toEqual(published.slice(0, 5));
      const fizz = published.filter(({ type }) => type === "Fizz");
      expect(await board.recent({ type: "Fizz", org: org_id, limit: 100 })).toEqual(fizz);
      expect(await board.recent({ type: "Fizz", org: org_id, limit: 2 })).toEqual(fizz.slice(0, 2));
      expect(await board.recent({ type: "None", org: org_id, limit: 100 })).toEqual([]);
      expect(await board.recent({ org: newName("org"), limit: 100 })).toEqual([]);
    }
  });

  test("lists the artifacts of a correlation newest first, by org and type", async () => {
    const { a, b } = at();
    const [org_id, correlation_id] = [newName("org"), newName("c")];
    const [first, second, third] = [
      makeTestArtifact({ org_id, correlation_id, type: "Fizz" }),
      makeTestArtifact({ org_id, correlation_id, type: "Buzz" }),
      makeTestArtifact({ org_id, correlation_id, type: "Fizz" }),
    ];
    const others = [
      makeTestArtifact({ org_id }),
      makeTestArtifact({ org_id, correlation_id: newName("c") }),
      makeTestArtifact({ org_id: newName("org"), correlation_id }),
    ];
    for (const artifact of [first, others[0]!, second, others[1]!, others[2]!, third])
      await a.publish([artifact]);
    const query = { org: org_id, correlationId: correlation_id };
    for (const board of [a, b]) {
      await eventually(async () =>
        expect(await board.recent({ ...query, limit: 100 })).toEqual([third, second, first]),
      );
      expect(await board.recent({ ...query, type: "Fizz", limit: 100 })).toEqual([third, first]);
    }
  });

  test("a process that starts lists the recent artifacts at once", async () => {
    const { a, open } = at();
    const [org_id, key] = [newName("org"), newName("k")];
    const artifacts = numbered([], key, 20).map((each) => ({ ...each, org_id }));
    for (const each of artifacts) await a.publish([each]);
    await caughtUp(at(), [a], key);
    const late = await open();
    expect(await late.recent({ org: org_id, limit: 5 })).toEqual(artifacts.slice(-5).reverse());
    await late.stop();
  });
}
