// A server whose agents record each run; some end the process during one. Prints its address,
// stops on SIGTERM, ends with its input.
import { appendFileSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { type AgentTask, agent, createKhala, FatalError, readConfig } from "@khala/server";
import { bombOf, isFatal, isFlaky, isLasting, noteOf } from "../steps/board_world_rules.ts";

process.stdin.resume().once("close", () => process.exit(1));
const runs = process.env.BOARD_RUNS!;

/** A side effect that cannot be undone. */
function effect(name: string, { idempotencyKey }: AgentTask): void {
  appendFileSync(runs, `${name} ${idempotencyKey}\n`);
}

/** Publishes the note under another type, after a moment in which the process may end. */
async function pass(type: string, task: AgentTask, signal: AbortSignal) {
  effect("run", task);
  const note = noteOf(task.artifact);
  await delay(note.n % 4, undefined, { signal });
  return { type, payload: { ...note }, partition_key: note.key };
}

const retry = { attempts: 100, base: 20, cap: 200 };
const agents = [
  agent("writer", { consumes: "Topic", retry, run: (task, signal) => pass("Draft", task, signal) }),
  agent("reviewer", {
    consumes: "Draft",
    strict: true,
    retry,
    run(task, signal) {
      const note = noteOf(task.artifact);
      if (isFatal(note)) throw new FatalError("It cannot be reviewed.");
      if (isFlaky(note) && task.attempt === 1) throw new Error("The model did not answer.");
      return pass("Review", task, signal);
    },
  }),
  agent("publisher", {
    consumes: "Review",
    order: "none",
    retry,
    run: (task, signal) => pass("Article", task, signal),
  }),
  agent("bomb", {
    consumes: "Bomb",
    retry,
    run(task) {
      const { moment } = bombOf(task.artifact);
      const die = () => process.kill(process.pid, "SIGKILL");
      const first = !readFileSync(runs, "utf8").includes(`armed ${task.idempotencyKey}`);
      if (first) effect("armed", task);
      if (first && moment === "before") die();
      effect("run", task);
      if (first && moment === "after") die();
      return { type: "Crater", payload: null };
    },
  }),
  agent("presser", {
    consumes: "Leaf",
    concurrency: 100,
    retry,
    async run(task, signal) {
      effect("run", task);
      const { n } = noteOf(task.artifact);
      const lasts = isLasting({ n }) && process.env.BOARD_LASTS !== "off";
      await delay(lasts ? 600_000 : n % 4, undefined, { signal });
      return { type: "Pressed", payload: { n } };
    },
  }),
];
const khala = await createKhala({ models: [], agents }, { config: readConfig() });
console.log(`listening on ${khala.url}`);
process.once("SIGTERM", () => khala.stop().then(() => process.exit(0)));
