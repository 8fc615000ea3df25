import { KhalaError } from "@khala/contracts";
import type { Board } from "../board.ts";
import type { DeadLetter } from "../model/task.ts";
import { deadLetterFor } from "../model/visibility.ts";
import type { BlackboardPlane, Caller } from "../plane.ts";
import type { Replays } from "./replays.ts";

/** Dead letters as a caller may see them, and their replay. */
export interface DeadLetters {
  readonly list: BlackboardPlane["deadLetters"];
  readonly get: BlackboardPlane["deadLetter"];
  readonly replay: BlackboardPlane["replay"];
  replayAll(
    ...given: Parameters<BlackboardPlane["replayAll"]>
  ): Promise<Required<Awaited<ReturnType<BlackboardPlane["replayAll"]>>>>;
}

const PAGE = 100;

/** Opens the dead letters. `check` throws for an unknown reader. */
export function openDeadLetters(
  board: Pick<Board, "deadLetters" | "deadLetter" | "deadLettersById">,
  replays: Omit<Replays, "count">,
  check: (agent: string) => void,
): DeadLetters {
  async function* pagesOf(caller: Caller, agent: string, correlationId?: string) {
    for (let after: string | undefined; ; ) {
      const page = await board.deadLetters(agent, {
        limit: PAGE,
        ...(after && { after }),
        ...ofCorrelation(caller, correlationId),
      });
      yield page.deadLetters.filter((letter) => isOf(caller, letter));
      after = page.next;
      if (!after) return;
    }
  }

  async function* named(caller: Caller, agent: string, ids: readonly string[]) {
    const wanted = [...new Set(ids)];
    for (let at = 0; at < wanted.length; at += PAGE) {
      const letters = await board.deadLettersById(agent, wanted.slice(at, at + PAGE));
      yield letters.filter((letter) => isOf(caller, letter));
    }
  }

  async function find(caller: Caller, agent: string, id: string): Promise<DeadLetter | undefined> {
    const letter = await board.deadLetter(agent, id);
    return letter && isOf(caller, letter) ? letter : undefined;
  }

  async function shown(caller: Caller, agent: string, letters: readonly DeadLetter[]): Promise<DeadLetter[]> {
    const states = await replays.statesOf(
      agent,
      letters.map(({ id }) => id),
    );
    return letters.map((letter) => {
      const replay = states.get(letter.id);
      return deadLetterFor(caller, replay ? { ...letter, replay_id: replay } : letter);
    });
  }

  return {
    async list(caller, agent, { correlationId, ...query }) {
      check(agent);
      const page = await board.deadLetters(agent, {
        ...query,
        ...ofCorrelation(caller, correlationId),
      });
      const own = page.deadLetters.filter((letter) => isOf(caller, letter));
      return { ...page, deadLetters: await shown(caller, agent, own) };
    },

    async get(caller, agent, id) {
      check(agent);
      const letter = await find(caller, agent, id);
      return letter && (await shown(caller, agent, [letter]))[0];
    },

    async replay(caller, agent, id, edit) {
      check(agent);
      const letter = await find(caller, agent, id);
      if (!letter) throw new KhalaError("not_found", `There is no dead letter "${id}" of "${agent}".`);
      return replays.replay(agent, letter, edit);
    },

    async replayAll(caller, agent, { ids, correlationId }) {
      check(agent);
      const pages = ids ? named(caller, agent, ids) : pagesOf(caller, agent, correlationId);
      return replays.replayMany(agent, pages);
    },
  };
}

/** A record that cannot be decoded may belong to any org, so only operators see it. */
function isOf({ org, operates = false }: Caller, { task }: DeadLetter): boolean {
  return task === undefined ? operates : task.artifacts[0].org_id === org;
}

/** The query's filter for one correlation of the caller's org, if it has one. */
function ofCorrelation({ org }: Caller, name: string | undefined) {
  return name ? { correlation: { org, name } } : {};
}
