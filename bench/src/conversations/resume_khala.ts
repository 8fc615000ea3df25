import { setTimeout } from "node:timers/promises";
import { SCOPES } from "@khala/contracts";
import { startProgram } from "../kit/program.ts";
import { mintTokens } from "../sync/tokens.ts";
import { type Answer, TOKEN } from "./answer.ts";
import { type Bench, convId, program } from "./bench.ts";
import type { GatewayProgram } from "./programs/gateway.ts";
import type { Resumed, ResumeLoad } from "./programs/resume_load.ts";
import { type RedisServer, sent } from "./redis.ts";

/** The answer that is resumed: 1 MiB in tokens of four characters. */
export const LONG: Answer = { tokens: (1 << 20) / TOKEN.length };
/** One at the pace of a model, for what a token costs in Redis. */
export const PACED: Answer = { tokens: 300, perSecond: 100 };
/** Longer than any window in which tokens are joined. */
const FLUSH_MS = 500;

/** What resuming took, by how, and commands per token if there was a Redis. */
export interface ResumeResult {
  readonly resumed: ReadonlyMap<string, readonly Resumed[]>;
  readonly unread?: number;
  readonly paced?: number;
}

/** The ways to resume, by where and how. */
export const WAYS = {
  eventsHere: "Khala, `after=`: all events, the server that makes the answer",
  eventsThere: "Khala, `after=`: all events, another server",
  collapsedHere: "Khala, `replay=1`: collapsed, the server that makes the answer",
  collapsedThere: "Khala, `replay=1`: collapsed, another server",
} as const;

/** Measures on Redis, or without one on PostgreSQL. */
export async function resumeKhala({ postgres, rounds }: Bench, redis?: RedisServer): Promise<ResumeResult> {
  await using here = startProgram<GatewayProgram>(program("gateway"));
  await using there = startProgram<GatewayProgram>(program("gateway"));
  await using load = startProgram<ResumeLoad>(program("resume_load"));
  const store = { url: await postgres.create("khala"), ...(redis && { redis: redis.url }) };
  const [token] = await mintTokens(1, SCOPES.chat);
  const atHere = { ...(await here.call("open", { store })), token: token! };
  // It forgets a conversation as soon as nobody follows it, and so never has anything in memory.
  const atThere = { ...(await there.call("open", { store, graceMs: 0 })), token: token! };
  const chars = LONG.tokens * TOKEN.length;

  const before = await redis?.commands();
  const long = convId(0);
  const cursor = await load.call("chat", { ...atHere, conv: long, answer: LONG });
  await here.call("written", undefined);
  await setTimeout(FLUSH_MS);
  const written = await redis?.commands();
  const after = `&after=${cursor}`;
  const seq = await load.call("follow", { ...atHere, conv: long, query: after, chars });

  const resumed = new Map<string, Resumed[]>(Object.values(WAYS).map((way) => [way, []]));
  for (let round = 0; round < rounds; round++) {
    for (const [at, events, collapsed] of [
      [atHere, WAYS.eventsHere, WAYS.collapsedHere],
      [atThere, WAYS.eventsThere, WAYS.collapsedThere],
    ] as const) {
      const request = { ...at, conv: long };
      resumed.get(events)!.push(await load.call("events", { ...request, query: after, seq }));
      const snapshot = await load.call("snapshot", { ...request, query: "&replay=1", chars });
      resumed.get(collapsed)!.push(snapshot);
    }
  }

  const beforePaced = await redis?.commands();
  const short = convId(1);
  const pacedFrom = await load.call("chat", { ...atHere, conv: short, answer: PACED });
  const query = `&after=${pacedFrom}`;
  await load.call("follow", { ...atThere, conv: short, query, chars: PACED.tokens * TOKEN.length });
  const afterPaced = await redis?.commands();
  await here.call("release", undefined);
  if (!before || !written || !beforePaced || !afterPaced) return { resumed };
  return {
    resumed,
    unread: sent(before, written, true) / LONG.tokens,
    paced: sent(beforePaced, afterPaced, true) / PACED.tokens,
  };
}
