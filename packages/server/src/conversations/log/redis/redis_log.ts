import { KhalaError } from "@khala/contracts";
import type { Context } from "../../../kit/context.ts";
import { GroupCommit } from "../../../kit/group_commit.ts";
import { checkAppend } from "../entries.ts";
import {
  type AppendOptions,
  type Bounds,
  Fenced,
  type Keep,
  type Log,
  type Page,
  type Position,
  StreamGone,
  type Watcher,
} from "../log.ts";
import type { RedisSettings } from "./connection.ts";
import { RedisNodes } from "./nodes.ts";
import {
  ADOPT,
  APPEND,
  BOOKMARK,
  DELETE,
  HEADS,
  keysOf,
  OPEN,
  READ,
  type RedisScript,
  TRIM,
} from "./scripts.ts";
import { askServer } from "./server.ts";
import type { RedisNodeState } from "./topology.ts";
import { parseRedisUrl } from "./url.ts";
import { RedisWatchers } from "./watchers.ts";

export interface RedisLogOptions {
  /** `redis://`, `rediss://`, or `redis-cluster://host:port,host:port`. */
  readonly url: string;
  /** How long a stream lives after its last append. */
  readonly ttlMs: number;
  /** How long an answer or a new connection may take. */
  readonly commandTimeoutMs?: number;
}

/** How the log's engine is. */
export interface RedisLogState {
  readonly engine: "redis" | "redis cluster";
  readonly version: string;
  readonly ready: boolean;
  readonly nodes: readonly RedisNodeState[];
}

/** The log on Redis Streams. */
export interface RedisLog extends Log {
  state(): RedisLogState;
  /**
   * Takes over a page of another log with its epoch and positions, so that cursors stay good. What is there already is
   * passed over. StreamGone when this log has another stream of that name, or not all that comes before the page.
   */
  adopt(stream: string, page: Page): Promise<void>;
}

interface Mark extends Position {
  readonly stream: string;
}

/** What is done for many streams is done for so many at once: Redis does nothing else meanwhile, and words wait. */
const AT_ONCE = 16;
const TRIM_LOOKS = 1_000;
const TRIM_ROUNDS = 200;

/** Opens the log on Redis 6.2 or later, Valkey, or a cluster of them; fails when it cannot be reached. */
export async function openRedisLog(context: Context, options: RedisLogOptions): Promise<RedisLog> {
  const { ttlMs, commandTimeoutMs = 5_000 } = options;
  const { Redis } = await import("ioredis");
  const settings: RedisSettings = {
    target: parseRedisUrl(options.url),
    timeoutMs: commandTimeoutMs,
    client: Redis,
  };
  const server = await askServer(context, settings);
  const publish = server.sharded ? "SPUBLISH" : "PUBLISH";
  const nodes = new RedisNodes(
    context,
    { ...settings, ...server },
    {
      message: (channel, payload) => watchers.message(channel, payload),
      missed: (channels) => watchers.missed(channels),
    },
  );
  const watchers = new RedisWatchers(context, nodes);
  await nodes.start();
  const ttl = String(ttlMs);
  // Each append brings an epoch in case the stream is new: a number is cheaper than a new id.
  const self = context.newId();
  let epochs = 0;
  const newEpoch = () => `${self}-${++epochs}`;

  async function run(stream: string, script: RedisScript, args: readonly string[], repeatable = true) {
    checkName(stream);
    return (await nodes.run(stream, script, args, repeatable)) as string[];
  }

  /** Runs a script that may be repeated for many streams, and answers in their order. */
  async function runForAll<T>(
    streams: readonly string[],
    script: RedisScript,
    argsOf: (place: number) => readonly string[] = () => [],
  ): Promise<T[]> {
    streams.forEach(checkName);
    const answers = new Array<T>(streams.length);
    await Promise.all(
      nodes.together(streams).map(async (places) => {
        const keys = places.flatMap((place) => keysOf(streams[place]!));
        const args = places.flatMap(argsOf);
        const part = (await nodes.run(streams[places[0]!]!, script, args, true, keys)) as T[];
        places.forEach((place, i) => {
          answers[place] = part[i]!;
        });
      }),
    );
    return answers;
  }

  const marks = new GroupCommit<Mark, number>({
    async commit(batch) {
      const streams = batch.map(({ stream }) => stream);
      const pending = await runForAll<number | string>(streams, BOOKMARK, (place) => {
        const { time, seq } = batch[place]!;
        return [String(time), String(seq)];
      });
      return pending.map((count) => ({ ok: Number(count) }));
    },
    sizeOf: () => 1,
    maxItems: AT_ONCE,
    maxBytes: AT_ONCE,
    maxWaitingBytes: 100_000,
  });

  return {
    async append(stream, entries, { epoch = "", fence }: AppendOptions = {}) {
      checkAppend(stream, entries);
      const now = String(context.clock.now());
      const args = [epoch, newEpoch(), now, ttl, fence?.toString() ?? "", publish, ...entries];
      const answer = await run(stream, APPEND, args, false);
      if (answer[0] === "gone") throw new StreamGone(`${stream} is not the stream that it was.`);
      if (answer[0] === "fenced") throw new Fenced(`${stream} was written by somebody with a higher fence.`);
      return boundsOf(answer);
    },

    async read(stream, after, limits): Promise<Page | undefined> {
      const answer = await run(stream, READ, [
        `${after.time}-${after.seq}`,
        String(limits.entries),
        String(limits.bytes),
      ]);
      if (answer.length === 0) return undefined;
      const entries = [];
      for (let i = 4; i < answer.length; i += 2)
        entries.push({ ...positionOf(answer[i]!), data: answer[i + 1]! });
      return { ...boundsOf(answer), entries };
    },

    async heads(streams) {
      const heads: (Bounds | undefined)[] = [];
      for (let at = 0; at < streams.length; at += AT_ONCE) {
        const answers = await runForAll<string[]>(streams.slice(at, at + AT_ONCE), HEADS);
        for (const answer of answers) heads.push(answer.length === 0 ? undefined : boundsOf(answer));
      }
      return heads;
    },

    watch: (stream: string, watcher: Watcher) => watchers.watch(stream, watcher),

    async open(stream) {
      const answer = await run(stream, OPEN, [newEpoch(), ttl]);
      const bounds = boundsOf(answer);
      if (answer[4] === "1")
        context.log.info(
          { stream, skipped: String(bounds.head.seq - bounds.floor) },
          "the group ui was created at $: what was there before is history",
        );
      return bounds;
    },

    bookmark: (stream, { time, seq }) => marks.write({ stream, time, seq }),

    async trim(stream, { since, entries, bytes }: Keep) {
      const limits = [since, entries, bytes].map((limit) => limit?.toString() ?? "");
      let removed = 0;
      for (let round = 0; round < TRIM_ROUNDS; round++) {
        // One that was lost may have trimmed already, and trims only the rest if it is repeated.
        const [went, more] = (await run(stream, TRIM, [...limits, String(TRIM_LOOKS)])).map(Number);
        removed += went!;
        if (!more) break;
      }
      return removed;
    },

    async delete(stream) {
      // Repeated, it could take the stream that came after.
      await run(stream, DELETE, [publish], false);
    },

    async adopt(stream, { epoch, floor, entries }) {
      if (entries.length === 0) return;
      const pairs = entries.flatMap(({ time, seq, data }) => [`${time}-${seq}`, data]);
      const [answer] = await run(stream, ADOPT, [epoch, String(floor), ttl, ...pairs]);
      if (answer === "foreign" || answer === "gap")
        throw new StreamGone(`${stream} is there already, and is not the same or not complete.`);
    },

    state() {
      const all = nodes.state();
      return {
        engine: server.cluster ? "redis cluster" : "redis",
        version: server.version,
        ready: all.length > 0 && all.every((node) => node.commands && node.subscriber),
        nodes: all,
      };
    },

    async stop() {
      await Promise.all([nodes.stop(), marks.drain()]);
    },
  };
}

function checkName(stream: string): void {
  if (/[{}]/.test(stream)) throw new KhalaError("invalid_request", "The name of a stream has no braces.");
}

function boundsOf([epoch, seq, time, floor]: readonly string[]): Bounds {
  return { epoch: epoch!, floor: BigInt(floor!), head: { seq: BigInt(seq!), time: Number(time) } };
}

function positionOf(id: string): Position {
  const dash = id.indexOf("-");
  return { time: Number(id.slice(0, dash)), seq: BigInt(id.slice(dash + 1)) };
}
