// A process that works for one agent of a board on Kafka. Prints each task it starts as "ran <id> <attempt>", then
// obeys its payload: "done" publishes an output under a new id, "first" does so too, but never ends the first, "die" ends at once as kill -9
// does, "late" answers after the given milliseconds, and "retry" fails with that delay.
import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { openBoard } from "../../../kafka/src/open_board.ts";
import type { Artifact } from "../../../server/src/blackboard/model/artifact.ts";
import type { Settlement, Task } from "../../../server/src/blackboard/model/task.ts";
import { testContext } from "../kit/context.ts";

const [bootstrap, prefix, transactionalId, agent, mode, ms] = process.argv.slice(2) as [
  string,
  string,
  string,
  string,
  "done" | "first" | "die" | "late" | "retry",
  string?,
];
const rules = { agent, order: "key" as const, strict: agent.startsWith("strict") };

let begun = 0;

async function handle(task: Task): Promise<Settlement> {
  console.log(`ran ${task.id} ${task.attempt}`);
  if (mode === "die") process.kill(process.pid, "SIGKILL");
  if (mode === "first" && ++begun === 1) await new Promise(() => {});
  if (mode === "late") await delay(Number(ms));
  const failure = { class: "Error", message: "not yet", kind: "retryable" } as const;
  if (mode === "retry") return { kind: "retry", delayMs: Number(ms), failure };
  const output: Artifact = { ...task.artifacts[0], id: randomUUID(), type: "Made", payload: mode, tags: [] };
  return { kind: "done", outputs: [output] };
}

const board = await openBoard(await testContext(), {
  agents: [rules],
  route: () => ({ tasks: [], dead: [] }),
  routes: false,
  observer: {
    published() {},
    routed() {},
    settled: (task, settlement) => console.log(`settled ${task.id} ${settlement.kind}`),
    repeated() {},
  },
  kafka: { bootstrap, clientId: transactionalId },
  prefix,
  partitions: 4,
  transactionalId,
  retryDelaysMs: [1_000, 5_000, 60_000],
  sessionTimeoutMs: 6_000,
});
board.consume({ ...rules, concurrency: 10, gate: async () => {}, handle });
console.log("ready");
process.once("SIGTERM", () => board.stop().then(() => process.exit(0)));
