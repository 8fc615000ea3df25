import { expect, test } from "vitest";
import type { Artifact } from "../../../../server/src/blackboard/model/artifact.ts";
import { eventually, makeTestArtifact, newName, type OpenBoard, rules, stage } from "./support.ts";
import { dead, done, failure, payloadOf, start, Worker } from "./worker.ts";

const ODD: readonly Artifact["payload"][] = [
  null,
  true,
  0,
  -1.5e-300,
  Number.MAX_SAFE_INTEGER,
  "",
  [],
  {},
  "null",
  "ü 漢字 👩‍👩‍👧 é é \u2028 \u0085 \u0001 \u007f \\u0041",
  "a\0b",
  { "": "", " ": 1, "a.b": 2, $ref: "#/a", constructor: 3, 漢: ["字"], "a\0": null },
  JSON.parse('{"__proto__": {"polluted": true}}'),
  [[[[]]], [null, [{ a: [{}] }]]],
];

function nested(depth: number): Artifact["payload"] {
  let value: Artifact["payload"] = "bottom";
  for (let i = 0; i < depth; i++) value = i % 2 ? [value] : { down: value };
  return value;
}

const bytesOf = (artifact: Artifact) => Buffer.byteLength(JSON.stringify(artifact));

/** An artifact of exactly this many bytes. */
function ofSize(bytes: number, given: Parameters<typeof makeTestArtifact>[0]): Artifact {
  const empty = makeTestArtifact({ ...given, payload: "" });
  return { ...empty, payload: "x".repeat(bytes - bytesOf(empty)) };
}

/** The promises of unusual payloads. */
export function edgePromises(open: OpenBoard): void {
  const at = stage(
    open,
    ["odd", "reader", "writer", "large", "buried", "wordy"].map((agent) => rules(agent)),
  );

  test("returns any JSON payload unchanged, from the index and to an agent", async () => {
    const { a, b } = at();
    const worker = new Worker("odd");
    await using _ = start(worker, b);
    const key = newName("k");
    const payloads = [...ODD, nested(200)];
    const artifacts = payloads.map((payload) => makeTestArtifact({ to: "odd", partition_key: key, payload }));
    await a.publish(artifacts);
    await worker.ran(payloads.length);
    expect(worker.payloads().map((each) => JSON.stringify(each))).toEqual(
      payloads.map((each) => JSON.stringify(each)),
    );
    for (const artifact of artifacts)
      for (const board of [a, b])
        await eventually(async () => expect(await board.get(artifact.org_id, artifact.id)).toEqual(artifact));
  });

  test("publishes any JSON an agent returns unchanged", async () => {
    const { a } = at();
    const key = newName("k");
    const writer = new Worker("writer", () =>
      done(...ODD.map((payload) => makeTestArtifact({ to: "reader", partition_key: key, payload }))),
    );
    const reader = new Worker("reader");
    await using _ = start(writer, a);
    await using __ = start(reader, a);
    await a.publish([makeTestArtifact({ to: "writer" })]);
    await reader.ran(ODD.length);
    expect(reader.payloads()).toEqual(ODD);
    expect(writer.runs).toHaveLength(1);
  });

  test("accepts any Unicode text in keys, types, tags and correlations", async () => {
    const { a, b } = at();
    const odd = `ü 漢 '"\\ %s $1 ${newName("👩‍👩‍👧")}`;
    const given = { type: odd, tags: [odd], produced_by: `user:${odd}`, org_id: odd };
    const artifact = makeTestArtifact({ ...given, correlation_id: odd, partition_key: odd });
    await a.publish([artifact]);
    await eventually(async () => expect(await b.get(artifact.org_id, artifact.id)).toEqual(artifact));
    await eventually(async () =>
      expect(await b.recent({ org: odd, type: odd, limit: 5 })).toEqual([artifact]),
    );
  });

  test("finds, runs and republishes an artifact of a megabyte", async () => {
    const { under, a, b } = at();
    const size = under.maxBytes ?? 1 << 20;
    const worker = new Worker("large", (task) =>
      payloadOf(task) === "small"
        ? done(ofSize(size, { to: "large", partition_key: task.key, produced_by: "agent:large" }))
        : done(),
    );
    await using _ = start(worker, b);
    const key = newName("k");
    const large = ofSize(size, { to: "large", partition_key: key });
    expect(await a.publish([large])).toEqual(["published"]);
    await a.publish([makeTestArtifact({ to: "large", partition_key: key, payload: "small" })]);
    await worker.ran(3);
    expect(worker.runs[0]!.task.artifacts).toEqual([large]);
    expect(bytesOf(worker.runs[2]!.task.artifacts[0])).toBe(size);
    await eventually(async () =>
      expect((await b.get(large.org_id, large.id))?.payload === large.payload).toBe(true),
    );
  });

  test("keeps the largest artifact as a dead letter, with its task and its error", async () => {
    const { under, a } = at();
    const worker = new Worker("buried", () => dead("too much ".repeat(50)));
    await using _ = start(worker, a);
    const large = ofSize(under.maxBytes ?? 1 << 20, { to: "buried", partition_key: newName("k") });
    await a.publish([large]);
    await worker.ran(1);
    await eventually(async () => {
      const { deadLetters } = await a.deadLetters("buried", { orgs: ["acme"], limit: 10 });
      expect(deadLetters).toHaveLength(1);
      expect(deadLetters[0]!.failure.message).toBe("too much ".repeat(50));
      expect(deadLetters[0]!.task?.artifacts[0].payload === large.payload).toBe(true);
    });
  });

  test("keeps any text in an error message", async () => {
    const { a } = at();
    const message = "ü 漢字 👩‍👩‍👧 \0 \u2028 \r\n 'quoted' \\";
    const worker = new Worker("wordy", (task) =>
      task.attempt === 1
        ? { kind: "retry", delayMs: 1, failure: failure("rate_limited", message) }
        : { kind: "dead", failure: failure("fatal", message) },
    );
    await using _ = start(worker, a);
    await a.publish([makeTestArtifact({ to: "wordy" })]);
    await eventually(async () => {
      const { deadLetters } = await a.deadLetters("wordy", { orgs: ["acme"], limit: 10 });
      expect(deadLetters.map((letter) => letter.failure)).toEqual([failure("fatal", message)]);
    });
    expect(worker.attempts()).toEqual([1, 2]);
  });

  test("refuses an artifact over the limit with a reason, and publishes nothing of the call", async ({
    skip,
  }) => {
    const { under, a } = at();
    skip(under.maxBytes === undefined, "This driver has no limit of its own.");
    const small = makeTestArtifact({ payload: "small" });
    const large = ofSize(2 * under.maxBytes!, {});
    await expect(a.publish([small, large])).rejects.toMatchObject({
      name: "KhalaError",
      code: "payload_too_large",
      message: expect.stringMatching(/large|bytes/i),
    });
    expect(await a.get(small.org_id, small.id)).toBeUndefined();
    expect(await a.publish([small])).toEqual(["published"]);
  });
}
