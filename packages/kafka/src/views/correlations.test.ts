import { expect, test } from "vitest";
import { artifact, task } from "../test_support.ts";
import { summaryOf } from "./artifact_summary.ts";
import { Correlations, keyOf } from "./correlations.ts";

const PLENTY = { maxCorrelations: 10, maxIds: 1_000 };
const of = (correlation: string) => artifact({ correlation_id: correlation });
const named = (...names: string[]) => names.map((name) => ({ org: artifact().org_id, name }));

test("a settled task stays settled, in whatever order its records are read", () => {
  const correlations = new Correlations(PLENTY);
  const work = task({ artifacts: [of("c")] });
  correlations.task(work, "done");
  correlations.task(work, "open");
  correlations.task(task({ artifacts: [of("c")] }), "open");
  expect(correlations.counts(named("c"), 0)).toMatchObject([{ open: 1, done: 1, dead: 0 }]);
});

test("counts a replay instead of its dead letter", () => {
  const correlations = new Correlations(PLENTY);
  const work = task({ artifacts: [of("c")] });
  const states: unknown[] = [];
  const look = () => states.push(correlations.counts(named("c"), 0)[0]);
  correlations.task(work, "dead");
  look();
  correlations.task({ ...work, replay_id: "0190-1" }, "open");
  look();
  correlations.task({ ...work, replay_id: "0190-1" }, "dead");
  correlations.task({ ...work, replay_id: "0190-2" }, "done");
  look();
  expect(states).toMatchObject([
    { open: 0, done: 0, dead: 1 },
    { open: 1, done: 0, dead: 0 },
    { open: 0, done: 1, dead: 0 },
  ]);
});

test("evicts the least recently changed correlations first, by number and by size", () => {
  const few = new Correlations({ maxCorrelations: 2, maxIds: 1_000 });
  for (const id of ["a", "b", "a", "c"]) few.onArtifact(summaryOf(of(id)));
  expect(few.counts(named("a", "b", "c"), 0).map(({ correlationId }) => correlationId)).toEqual(["a", "c"]);
  const small = new Correlations({ maxCorrelations: 10, maxIds: 3 });
  for (const id of ["a", "a", "b", "b"]) small.onArtifact(summaryOf(of(id)));
  expect(small.counts(named("a", "b"), 0)).toMatchObject([{ correlationId: "b", artifacts: 2 }]);
});

test("keeps correlations of two orgs with the same name apart", () => {
  const correlations = new Correlations(PLENTY);
  const [ours, theirs] = [of("c"), { ...of("c"), org_id: "zeta" }];
  for (const each of [ours, theirs, { ...theirs, id: ours.id }]) correlations.onArtifact(summaryOf(each));
  correlations.task(task({ artifacts: [ours] }), "done");
  correlations.task(task({ artifacts: [theirs] }), "open");
  expect(correlations.counts([{ org: "zeta", name: "c" }, ...named("c")], 0)).toMatchObject([
    { correlationId: "c", org: "zeta", artifacts: 2, open: 1, done: 0 },
    { correlationId: "c", org: ours.org_id, artifacts: 1, open: 0, done: 1 },
  ]);
});

test("does not count records without a correlation", () => {
  const correlations = new Correlations(PLENTY);
  correlations.onArtifact(summaryOf(artifact()));
  correlations.task(task(), "open");
  expect(correlations.counts(named(""), 0)).toEqual([]);
});

test("stays unconfirmed until the router has passed its artifacts and nothing has changed since", () => {
  const correlations = new Correlations(PLENTY);
  const draft = of("c");
  const publish = (at: number) => {
    const value = Buffer.from(JSON.stringify(draft));
    correlations.onPublished({
      topic: "a",
      partition: 1,
      at,
      offset: String(at),
      key: null,
      value,
      timestamp: "0",
    });
  };
  publish(5);
  let unconfirmed = correlations.unconfirmed(named("c", "unknown"));
  expect([...unconfirmed.keys()]).toEqual(named("c").map(keyOf));
  expect(correlations.routed(unconfirmed, new Map([[1, 5]]))).toEqual(unconfirmed);
  publish(8);
  unconfirmed = correlations.routed(unconfirmed, new Map([[1, 9]]));
  expect(unconfirmed.size).toBe(1);
  expect(correlations.routed(unconfirmed, new Map([[1, 9]])).size).toBe(0);
  const made = task({ artifacts: [draft] });
  correlations.task(made, "open");
  expect(correlations.routed(unconfirmed, new Map([[1, 9]])).size).toBe(0);
  expect(correlations.unconfirmed(named("c")).size).toBe(0);
  correlations.task(made, "done");
  expect(correlations.unconfirmed(named("c")).size).toBe(1);
});
