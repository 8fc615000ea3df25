import { randomUUID } from "node:crypto";
import { openBoard } from "../../../kafka/src/open_board.ts";
import type { Board } from "../../../server/src/blackboard/board.ts";
import type { Artifact } from "../../../server/src/blackboard/model/artifact.ts";
import type { Context } from "../../../server/src/kit/context.ts";
import type { Service } from "../../../server/src/kit/service.ts";
import type { Note } from "./board_world_rules.ts";

/** The role of a process: makes tasks of drafts, or works for the agent that takes them. */
export type Role = "router" | "agent";

/** The address of a board, and the name of a process on it. */
export interface StepPlace {
  readonly bootstrap: string;
  readonly prefix: string;
  readonly clientId: string;
  readonly transactionalId: string;
}

/** The agent that turns each draft into an output. */
export const MAKER = { agent: "maker", order: "key", strict: false } as const;

/** Opens the board for one role; neither role does the work of the other. */
export async function openStepBoard(
  context: Context,
  { bootstrap, prefix, clientId, transactionalId }: StepPlace,
  role: Role,
): Promise<Service & Pick<Board, "publish" | "recent">> {
  const board = await openBoard(context, {
    agents: [MAKER],
    route: (artifact) => ({ tasks: artifact.type === "Draft" ? [taskOf(artifact)] : [], dead: [] }),
    routes: role === "router",
    observer: { published() {}, routed() {}, settled() {}, repeated() {} },
    kafka: { bootstrap, clientId },
    prefix,
    transactionalId,
    // One, so that the next owner of the id ends the transaction that was left open.
    producers: 1,
    partitions: 4,
    retryDelaysMs: [60_000],
    sessionTimeoutMs: 3_000,
  });
  if (role === "agent")
    board.consume({
      ...MAKER,
      concurrency: 10,
      async gate() {},
      async handle({ artifacts: [draft] }) {
        const { key, n } = draft.payload as Partial<Note> as Note;
        // A new id each time: a second run that became visible would show.
        const made = { ...draft, id: randomUUID(), type: "Made", payload: { key, n, of: draft.id } };
        return { kind: "done", outputs: [made] };
      },
    });
  return board;
}

function taskOf(artifact: Artifact) {
  const { id, created_at, partition_key: key = id } = artifact;
  return { id, agent: MAKER.agent, artifacts: [artifact] as const, key, attempt: 1, created_at };
}
