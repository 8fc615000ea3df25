import { expect, test } from "vitest";
import type { Task } from "../../../../server/src/blackboard/model/task.ts";
import {
  eventually,
  makeTestArtifact,
  makeTestTask,
  newId,
  newName,
  numbered,
  type OpenBoard,
  range,
  rules,
  stage,
} from "./support.ts";
import { dead, done, payloadOf, retry, start, Worker } from "./worker.ts";

const AGENTS = "again buried clicked waiting twice durable maker made same other clash retried".split(" ");

/** The promises of deduplication. */
export function dedupPromises(open: OpenBoard): void {
  const at = stage(
    open,
    AGENTS.map((agent) => rules(agent)),
  );

  /** Waits until an artifact published last under the same key is settled: everything before it has been handled by then. */
  async function flush(worker: Worker, { agent, key }: Pick<Task, "agent" | "key">): Promise<void> {
    const { a, heard } = at();
    const last = makeTestArtifact({ to: agent, partition_key: key, payload: "last" });
    await a.publish([last]);
    await eventually(() => expect(heard.settlements.map(({ task }) => task.id)).toContain(last.id));
    worker.runs.splice(
      worker.runs.findIndex(({ task }) => task.id === last.id),
      1,
    );
  }

  test("skips a settled task that is enqueued again, and runs its replay as new work", async () => {
    const { a, b, heard } = at();
    const worker = new Worker("again");
    await using _ = start(worker, a, b);
    const artifact = makeTestArtifact({ to: "again", partition_key: newName("k"), payload: "work" });
    await a.publish([artifact]);
    await worker.ran(1);
    await eventually(() => expect(heard.settledBy("again")).toHaveLength(1));
    const task = makeTestTask("again", artifact);
    await b.enqueue([task]);
    await a.enqueue([task]);
    await flush(worker, task);
    expect(worker.runs).toHaveLength(1);
    await eventually(() =>
      expect(heard.repetitions.filter(({ agent }) => agent === "again").map(({ id }) => id)).toEqual([
        task.id,
        task.id,
      ]),
    );
    const replay_id = newId();
    await b.enqueue([{ ...task, replay_id }]);
    await worker.ran(2);
    expect(worker.runs[1]!.task).toMatchObject({ id: task.id, attempt: 1, replay_id, artifacts: [artifact] });
  });

  test("does not run a dead task again, but runs its replay, with attempts from 1", async () => {
    const { a, b, heard } = at();
    const worker = new Worker("buried", (task) => {
      if (payloadOf(task) === "last") return done();
      if (task.replay_id) return task.attempt === 1 ? retry(10) : done();
      return task.attempt === 1 ? retry(10) : dead();
    });
    await using _ = start(worker, a, b);
    const artifact = makeTestArtifact({ to: "buried", partition_key: newName("k") });
    await a.publish([artifact]);
    await worker.ran(2);
    await eventually(() => expect(heard.settledBy("buried")).toHaveLength(2));
    const task = makeTestTask("buried", artifact);
    await a.enqueue([task]);
    await flush(worker, task);
    expect(worker.runs).toHaveLength(2);
    await a.enqueue([{ ...task, replay_id: newId() }]);
    await worker.ran(4);
    expect(worker.attempts()).toEqual([1, 2, 1, 2]);
  });

  test("runs a replay that is requested twice once, and another replay again", async () => {
    const { a, b, heard } = at();
    const worker = new Worker("clicked");
    await using _ = start(worker, a, b);
    const task = makeTestTask("clicked", makeTestArtifact({ partition_key: newName("k") }));
    await a.enqueue([task]);
    await eventually(() => expect(heard.settledBy("clicked")).toHaveLength(1));
    const [one, two] = [newId(), newId()];
    await Promise.all([a, b, a].map((board) => board.enqueue([{ ...task, replay_id: one }])));
    await flush(worker, task);
    await eventually(() => expect(worker.runs).toHaveLength(2));
    await b.enqueue([{ ...task, replay_id: two }]);
    await a.enqueue([{ ...task, replay_id: one }]);
    await flush(worker, task);
    await worker.ran(3);
    expect(worker.runs.map((run) => run.task.replay_id)).toEqual([undefined, one, two]);
  });

  test("runs a task once that is enqueued twice before it runs", async () => {
    const { a, b } = at();
    const worker = new Worker("waiting");
    const tasks = numbered([], newName("k"), 5).map((each) => makeTestTask("waiting", each));
    await a.enqueue(tasks);
    await b.enqueue(tasks);
    await a.enqueue([tasks[2]!, tasks[2]!]);
    await using _ = start(worker, a, b);
    await flush(worker, tasks[0]!);
    await worker.ran(5);
    expect(worker.payloads()).toEqual(range(1, 5));
  });

  test("runs a task once more, not twice, when it is enqueued again while it waits for its retry", async () => {
    const { a, b, heard } = at();
    const worker = new Worker("retried", (task) =>
      task.attempt === 1 && payloadOf(task) === "work" ? retry(400) : done(),
    );
    await using _ = start(worker, a, b);
    const artifact = makeTestArtifact({ to: "retried", partition_key: newName("k"), payload: "work" });
    await a.publish([artifact]);
    await eventually(() => expect(heard.settledBy("retried")).toHaveLength(1));
    const task = makeTestTask("retried", artifact);
    await a.enqueue([task]);
    await eventually(() => {
      const ends = heard.settledBy("retried").filter(({ settlement }) => settlement.kind === "done");
      expect(ends).toHaveLength(1);
    });
    await flush(worker, task);
    const ends = heard.settledBy("retried").filter(({ settlement }) => settlement.kind === "done");
    expect(ends.filter(({ task }) => task.id === artifact.id)).toHaveLength(1);
    expect(worker.overlaps).toEqual([]);
  });

  test("runs an artifact once that two processes publish at the same time", async () => {
    const { a, b, heard } = at();
    const worker = new Worker("twice");
    await using _ = start(worker, a, b);
    const key = newName("k");
    for (const each of numbered("twice", key, 10)) {
      const answers = await Promise.all([a, b, a, b].map((board) => board.publish([each])));
      expect(answers.flat()).toContain("published");
    }
    await flush(worker, { agent: "twice", key });
    await worker.ran(10);
    expect(worker.payloads(key)).toEqual(range(1, 10));
    expect(heard.settledBy("twice")).toHaveLength(11);
  });

  test("a process that starts later does not repeat tasks settled before", async () => {
    const { a, open, heard } = at();
    const worker = new Worker("durable");
    const tasks = numbered([], newName("k"), 20).map((each) => makeTestTask("durable", each));
    const started = start(worker, a);
    await a.enqueue(tasks);
    await eventually(() => expect(heard.settledBy("durable")).toHaveLength(20));
    await started.stop();
    const late = await open();
    await using _ = start(worker, late);
    await late.enqueue(tasks.toReversed());
    await flush(worker, tasks[0]!);
    expect(worker.runs).toHaveLength(20);
  });

  test("publishes and routes an output once, even if a replay returns it again", async () => {
    const { a, b, heard } = at();
    const output = makeTestArtifact({ to: "made", partition_key: newName("k"), payload: "once" });
    const maker = new Worker("maker", () => done(output));
    const made = new Worker("made");
    await using _ = start(maker, a, b);
    await using __ = start(made, a, b);
    const task = makeTestTask("maker", makeTestArtifact({ partition_key: newName("k") }));
    await a.enqueue([task]);
    await made.ran(1);
    for (const board of [a, b])
      await eventually(async () => expect(await board.get(output.org_id, output.id)).toEqual(output));
    await a.enqueue([{ ...task, replay_id: newId() }]);
    await b.enqueue([{ ...task, replay_id: newId() }]);
    await eventually(() => expect(heard.settledBy("maker")).toHaveLength(3));
    await flush(made, makeTestTask("made", output));
    expect(made.runs).toHaveLength(1);
    expect(heard.publications.filter(({ id }) => id === output.id)).toEqual([output]);
  });

  test("runs an artifact for one agent after another agent has settled it", async () => {
    const { a, b, heard } = at();
    const [same, other] = [new Worker("same"), new Worker("other")];
    const artifact = makeTestArtifact({ to: ["same", "other"] });
    await using _ = start(same, a);
    await a.publish([artifact]);
    await same.ran(1);
    await eventually(() => expect(heard.settledBy("same")).toHaveLength(1));
    await using __ = start(other, b);
    await other.ran(1);
    expect(other.runs[0]!.task.id).toBe(same.runs[0]!.task.id);
  });

  test("keeps an artifact whose id an output reuses with other content, and runs the next tasks", async () => {
    const { a, b } = at();
    const taken = makeTestArtifact({ payload: "first" });
    await a.publish([taken]);
    for (const board of [a, b])
      await eventually(async () => expect(await board.get(taken.org_id, taken.id)).toEqual(taken));
    const worker = new Worker("clash", (task) =>
      payloadOf(task) === 1 ? done({ ...taken, payload: "second" }) : done(),
    );
    await using _ = start(worker, a, b);
    const key = newName("k");
    await a.publish(numbered("clash", key, 3));
    await eventually(() => expect(worker.payloads(key).slice(-2)).toEqual([2, 3]));
    expect(await a.get(taken.org_id, taken.id)).toEqual(taken);
    expect(await b.get(taken.org_id, taken.id)).toEqual(taken);
  });
}
