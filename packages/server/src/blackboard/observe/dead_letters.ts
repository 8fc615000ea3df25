import { may, notFound } from "../../access/access.ts";
import { type Board, NO_ORG } from "../board.ts";
import type { DeadLetter } from "../model/task.ts";
import { artifactResource, deadLetterFor } from "../model/visibility.ts";
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

/** Opens the dead letters. `check` throws for an unknown reader, and for one whose dead letters the caller may not see. */
export function openDeadLetters(
  board: Pick<Board, "deadLetters" | "deadLettersById">,
  replays: Omit<Replays, "count">,
  check: (caller: Caller, agent: string) => void,
): DeadLetters {
  async function* pagesOf(caller: Caller, agent: string, correlationId?: string) {
    for (let after: string | undefined; ; ) {
      const page = await board.deadLetters(agent, {
        orgs: orgsOf(caller),
        limit: PAGE,
        ...(after && { after }),
        ...(correlationId && { correlationId }),
      });
      yield page.deadLetters;
      after = page.next;
      if (!after) return;
    }
  }

  async function* named(caller: Caller, agent: string, ids: readonly string[]) {
    const wanted = [...new Set(ids)];
    for (let at = 0; at < wanted.length; at += PAGE)
      yield await board.deadLettersById(agent, orgsOf(caller), wanted.slice(at, at + PAGE));
  }

  async function find(caller: Caller, agent: string, id: string): Promise<DeadLetter | undefined> {
    return (await board.deadLettersById(agent, orgsOf(caller), [id]))[0];
  }

  async function shown(caller: Caller, agent: string, letters: readonly DeadLetter[]): Promise<DeadLetter[]> {
    const states = await replays.statesOf(
      agent,
      caller.org,
      letters.map(({ id }) => id),
    );
    return letters.map((letter) => {
      const replay = states.get(letter.id);
      return deadLetterFor(caller, replay ? { ...letter, replay_id: replay } : letter);
    });
  }

  return {
    async list(caller, agent, query) {
      check(caller, agent);
      const page = await board.deadLetters(agent, { ...query, orgs: orgsOf(caller) });
      return { ...page, deadLetters: await shown(caller, agent, page.deadLetters) };
    },

    async get(caller, agent, id) {
      check(caller, agent);
      const letter = await find(caller, agent, id);
      return letter && (await shown(caller, agent, [letter]))[0];
    },

    async replay(caller, agent, id, edit) {
      check(caller, agent);
      const letter = await find(caller, agent, id);
      if (!letter) throw notFound("dead letter", id);
      // Another payload is another content of the artifact: only who may read that may replace it.
      const hidden = letter.task?.artifacts.find(
        (artifact) => !may(caller, "artifact.replace", artifactResource(artifact)),
      );
      if (edit && hidden) throw notFound("artifact", hidden.id);
      return replays.replay(agent, letter, edit);
    },

    async replayAll(caller, agent, { ids, correlationId }) {
      check(caller, agent);
      const pages = ids ? named(caller, agent, ids) : pagesOf(caller, agent, correlationId);
      return replays.replayMany(agent, pages);
    },
  };
}

/** A record that cannot be decoded may belong to any org, so only who inspects the whole server sees it. */
function orgsOf(caller: Caller): string[] {
  const { org } = caller;
  return may(caller, "server.inspect", { org }) ? [org, NO_ORG] : [org];
}
