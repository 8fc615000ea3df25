import type { BoardUnderTest } from "@khala/test-support/conformance/board/board";
import {
  Heard,
  makeTestArtifact,
  newId,
  newName,
  routeByTags,
  rules,
} from "@khala/test-support/conformance/board/support";
import { dead, done, retry, Worker } from "@khala/test-support/conformance/board/worker";
import { eventually } from "@khala/test-support/kit/eventually";
import { until } from "@khala/test-support/kit/until";
import { expect } from "vitest";
import type { Board } from "../../../packages/server/src/blackboard/board.ts";
import type { Artifact } from "../../../packages/server/src/blackboard/model/artifact.ts";
import type { Settlement, Task } from "../../../packages/server/src/blackboard/model/task.ts";
import type { Service } from "../../../packages/server/src/kit/service.ts";
import { checkRuns, outputId } from "./board_checks.ts";
import { type Command, NAMES, type Name, PROCESSES, type Seed } from "./board_commands.ts";

/** A board that nobody has used before. */
export type OpenedBoard = Pick<BoardUnderTest, "open"> & AsyncDisposable;

/** The agents as a board is told of them. */
const AGENTS = NAMES.map((name, i) => rules(name, { strict: i < 2 }));

/** An artifact of a history, and what should become of it. */
interface Sown {
  readonly artifact: Artifact;
  readonly seed: Seed;
}

/** A task that there must be, and its end. */
interface Expected {
  readonly name: string;
  readonly agent: Name;
  readonly id: string;
  readonly ends: "done" | "dead";
}

/** One process: a handle on the board, and the agents that work in it. */
interface Process {
  board: Board;
  readonly work: Map<Name, Service>;
}

/** Lets a history happen to a board, and knows what must have come of it. */
export class BoardWorld {
  readonly #under: OpenedBoard;
  readonly #heard = new Heard();
  readonly #correlation = newName("history");
  readonly #processes: Process[] = [];
  readonly #workers = new Map<Name, Worker>();
  readonly #sown = new Map<string, Sown>();
  /** Those that were not outputs, in the order of their publication. */
  readonly #roots: Artifact[] = [];

  private constructor(under: OpenedBoard) {
    this.#under = under;
    for (const agent of AGENTS)
      this.#workers.set(agent.agent as Name, new Worker(agent, (task) => this.#work(task), 4));
  }

  static async open(under: OpenedBoard): Promise<BoardWorld> {
    const world = new BoardWorld(under);
    for (let i = 0; i < PROCESSES; i++) {
      world.#processes.push({ board: await world.#board(), work: new Map() });
      for (const name of NAMES) await world.run({ do: "start_work", by: i, agent: name });
    }
    return world;
  }

  #board(): Promise<Board> {
    return this.#under.open({ agents: AGENTS, route: routeByTags, observer: this.#heard });
  }

  async run(command: Command): Promise<void> {
    switch (command.do) {
      case "publish":
        return this.#publish(this.#processes[command.by]!.board, command.seeds);
      case "publish_again": {
        const { board } = this.#processes[command.by]!;
        const artifact = this.#roots[command.which % this.#roots.length];
        if (!artifact) return;
        await eventually("the process knows it", () => board.get(artifact.org_id, artifact.id));
        expect(await board.publish([artifact])).toEqual(["duplicate"]);
        return;
      }
      case "enqueue_again": {
        const settled = this.#heard.settlements.filter(({ settlement }) => settlement.kind !== "retry");
        const again = settled[command.which % settled.length];
        if (again) await this.#processes[command.by]!.board.enqueue([{ ...again.task, attempt: 1 }]);
        return;
      }
      case "pause":
        return this.#workers.get(command.agent)!.closeGate();
      case "resume":
        return this.#workers.get(command.agent)!.openGate();
      case "start_work": {
        const { board, work } = this.#processes[command.by]!;
        if (!work.has(command.agent))
          work.set(command.agent, board.consume(this.#workers.get(command.agent)!));
        return;
      }
      case "stop_work": {
        const { work } = this.#processes[command.by]!;
        await work.get(command.agent)?.stop();
        work.delete(command.agent);
        return;
      }
      case "restart": {
        const process = this.#processes[command.by]!;
        const names = [...process.work.keys()];
        await this.#stop(process);
        process.board = await this.#board();
        for (const agent of names) await this.run({ do: "start_work", by: command.by, agent });
        return;
      }
      case "breathe":
        for (let i = 0; i < command.turns; i++) await this.#processes[0]!.board.counts();
    }
  }

  async #publish(board: Board, seeds: readonly Seed[]): Promise<void> {
    const artifacts = seeds.map((seed) => this.#sow(seed, newId(), 0));
    this.#roots.push(...artifacts);
    expect(await board.publish(artifacts)).toEqual(artifacts.map(() => "published"));
  }

  #sow(seed: Seed, id: string, depth: number): Artifact {
    const artifact = makeTestArtifact({
      id,
      depth,
      to: NAMES.filter((name) => seed.fates[name]),
      correlation_id: this.#correlation,
      partition_key: `${this.#correlation}-${seed.key}`,
    });
    this.#sown.set(id, { artifact, seed });
    return artifact;
  }

  #work({ id, agent, attempt }: Task): Settlement {
    const { seed, artifact } = this.#sown.get(id)!;
    const { failures, ends } = seed.fates[agent as Name]!;
    if (attempt <= failures) return retry(attempt * 5);
    if (ends === "dead") return dead();
    return done(
      ...seed.outputs.map((output, i) => {
        const made = outputId(id, agent, i);
        return this.#sown.get(made)?.artifact ?? this.#sow(output, made, artifact.depth + 1);
      }),
    );
  }

  /** Lets everything come to its end, and checks what came of it. */
  async settle(): Promise<void> {
    for (const [i] of this.#processes.entries())
      for (const agent of NAMES) {
        await this.run({ do: "resume", agent });
        await this.run({ do: "start_work", by: i, agent });
      }
    const ends = () => this.#heard.settlements.filter(({ settlement }) => settlement.kind !== "retry");
    const expected = this.#expected();
    await until(
      `${expected.length} tasks are settled`,
      () => ends().length >= expected.length && this.#idle(),
      { deadlineMs: 120_000 },
    ).catch(async (error: Error) => {
      const counts = JSON.stringify(await this.#processes[0]!.board.counts());
      const missing = new Set(expected.map(({ name }) => name));
      for (const { task } of ends()) missing.delete(`${task.agent} ${task.id}`);
      throw new Error(`${error.message} ${counts} Missing: ${[...missing].join(", ")}`, { cause: error });
    });
    expect(
      ends()
        .map(({ task, settlement }) => `${task.agent} ${task.id} ${settlement.kind}`)
        .sort(),
    ).toEqual(expected.map(({ name, ends }) => `${name} ${ends}`).sort());
    for (const worker of this.#workers.values()) checkRuns(worker, this.#roots);
    await this.#checkRoutings();
    await this.#checkNumbers(expected);
  }

  async #idle(): Promise<boolean> {
    const counts = await this.#processes[0]!.board.counts();
    return counts.every(({ waiting, running }) => waiting + running === 0);
  }

  /** Every task that there must be, with its end. Outputs are those that can come of the roots. */
  #expected(): Expected[] {
    const all: Expected[] = [];
    const visit = (id: string, seed: Seed) => {
      for (const agent of NAMES) {
        const fate = seed.fates[agent];
        if (!fate) continue;
        all.push({ name: `${agent} ${id}`, agent, id, ends: fate.ends });
        if (fate.ends === "done")
          for (const [i, output] of seed.outputs.entries()) visit(outputId(id, agent, i), output);
      }
    };
    for (const { id } of this.#roots) visit(id, this.#sown.get(id)!.seed);
    return all;
  }

  /** Each artifact was routed once, and none that there should not be. */
  async #checkRoutings(): Promise<void> {
    const routed = () => this.#heard.routings.map(({ artifact }) => artifact.id);
    await eventually("all is routed, what nobody wants too", () => routed().length >= this.#sown.size);
    expect(routed().toSorted()).toEqual([...this.#sown.keys()].toSorted());
  }

  async #checkNumbers(expected: readonly Expected[]): Promise<void> {
    const count = (ends: "done" | "dead") => expected.filter((each) => each.ends === ends).length;
    for (const { board } of this.#processes) {
      for (const name of NAMES) {
        const buried = expected.filter(({ agent, ends }) => agent === name && ends === "dead");
        await eventually(`the dead letters of ${name} are there`, async () => {
          const query = { orgs: ["acme"], limit: 1_000, correlationId: this.#correlation };
          const { deadLetters } = await board.deadLetters(name, query);
          if (deadLetters.length < buried.length) return false;
          expect(deadLetters.map(({ task }) => task?.id).sort()).toEqual(buried.map(({ id }) => id).sort());
          return true;
        });
      }
      for (const { artifact } of this.#sown.values())
        await eventually("the artifact is found", () => board.get(artifact.org_id, artifact.id));
      if (this.#roots.length === 0) continue;
      const numbers = { artifacts: this.#sown.size, open: 0, done: count("done"), dead: count("dead") };
      await eventually(`the correlation counts ${JSON.stringify(numbers)}`, async () => {
        const [counts] = await board.correlations([{ org: "acme", name: this.#correlation }]);
        return counts && Object.entries(numbers).every(([name, n]) => Reflect.get(counts, name) === n);
      });
    }
  }

  async #stop({ board, work }: Process): Promise<void> {
    await Promise.all([...work.values()].map((service) => service.stop()));
    work.clear();
    await board.stop();
  }

  /** Stops all processes. */
  async end(): Promise<void> {
    for (const worker of this.#workers.values()) worker.openGate();
    await Promise.all(this.#processes.map((process) => this.#stop(process)));
  }
}
