import { KhalaError } from "@khala/contracts";
import type { Context } from "../../../kit/context.ts";
import { GroupCommit } from "../../../kit/group_commit.ts";
import { loadOptional } from "../../../kit/optional_package.ts";
import { checkAppend } from "../append_checks.ts";
import {
  type AppendOptions,
  type Bounds,
  Fenced,
  type Log,
  type Page,
  type Position,
  type Retention,
  StreamGone,
  type Watcher,
} from "../log.ts";
import { RedisConnection, type RedisSettings } from "./connection.ts";
import { redisError } from "./errors.ts";
import { RedisWatchers } from "./redis_watchers.ts";
import { RedisRouter } from "./router.ts";
import {
  ADOPT,
  APPEND,
  BOOKMARK,
  BOUNDS,
  DELETE,
  keysOf,
  OPEN,
  READ,
  type RedisScript,
  TRIM,
} from "./scripts.ts";
import type { RedisNodeState } from "./topology.ts";
import { parseRedisUrl } from "./url.ts";

export interface RedisLogOptions {
  /** `redis://`, `rediss://`, or `redis-cluster://host:port,host:port`. */
  readonly url: string;
  /** How long a stream lives after its last append. */
  readonly ttlMs: number;
  /** How long an answer or a new connection may take. */
  readonly commandTimeoutMs?: number;
}

/** The state of the log's backend. */
export interface RedisLogState {
  readonly backend: "redis" | "redis cluster";
  readonly version: string;
  readonly ready: boolean;
  readonly nodes: readonly RedisNodeState[];
}

/** The log on Redis Streams. */
export interface RedisLog extends Log {
  state(): RedisLogState;
  /**
   * Imports a page of another log with its epoch and positions, so that cursors stay valid. Skips existing entries. Fails
   * with StreamGone when this log has another stream of that name, or lacks entries before the page.
   */
  adopt(stream: string, generation: bigint, page: Page): Promise<void>;
}

interface Bookmark extends Position {
  readonly stream: string;
}

/** Streams per script: Redis is single-threaded, and appends wait for it. */
const BATCH_SIZE = 16;
const TRIM_BATCH = 1_000;
const MAX_TRIM_BATCHES = 200;

/** The Redis client, which is installed by those who set REDIS_URL. */
export function loadRedisClient() {
  return loadOptional("ioredis", "REDIS_URL", () => import("ioredis"));
}

/** Opens the log on Redis 6.2 or later, Valkey, or a cluster of them; fails when it cannot be reached. */
export async function openRedisLog(context: Context, options: RedisLogOptions): Promise<RedisLog> {
  const { ttlMs, commandTimeoutMs = 5_000 } = options;
  const { Redis } = await loadRedisClient();
  const settings: RedisSettings = {
    target: parseRedisUrl(options.url),
    timeoutMs: commandTimeoutMs,
    client: Redis,
  };
  const server = await probeServer(context, settings);
  const publish = server.sharded ? "SPUBLISH" : "PUBLISH";
  const router = new RedisRouter(
    context,
    { ...settings, ...server },
    {
      message: (channel, payload) => watchers.message(channel, payload),
      missed: (channels) => watchers.missed(channels),
    },
  );
  const watchers = new RedisWatchers(context, router);
  await router.start();
  const ttl = String(ttlMs);
  // Each append carries an epoch in case the stream is new: a counter is cheaper than a new id.
  const self = context.newId();
  let epochs = 0;
  const newEpoch = () => `${self}-${++epochs}`;

  async function run(stream: string, script: RedisScript, args: readonly string[], repeatable = true) {
    checkName(stream);
    return (await router.run(stream, script, args, repeatable)) as string[];
  }

  /** Runs an idempotent script for many streams; returns the results in their order. */
  async function runForAll<T>(
    streams: readonly string[],
    script: RedisScript,
    argsOf: (index: number) => readonly string[] = () => [],
  ): Promise<T[]> {
    streams.forEach(checkName);
    const answers = new Array<T>(streams.length);
    await Promise.all(
      router.groupBySlot(streams).map(async (indexes) => {
        const keys = indexes.flatMap((index) => keysOf(streams[index]!));
        const args = indexes.flatMap(argsOf);
        const part = (await router.run(streams[indexes[0]!]!, script, args, true, keys)) as T[];
        indexes.forEach((index, i) => {
          answers[index] = part[i]!;
        });
      }),
    );
    return answers;
  }

  const bookmarks = new GroupCommit<Bookmark, number>({
    async commit(batch) {
      const streams = batch.map(({ stream }) => stream);
      const pending = await runForAll<number | string>(streams, BOOKMARK, (index) => {
        const { time, seq } = batch[index]!;
        return [String(time), String(seq)];
      });
      return pending.map((count) => ({ ok: Number(count) }));
    },
    sizeOf: () => 1,
    maxItems: BATCH_SIZE,
    maxBytes: BATCH_SIZE,
    maxWaitingBytes: 100_000,
  });

  return {
    async append(stream, entries, { epoch = "", fence }: AppendOptions = {}) {
      checkAppend(stream, entries);
      const now = String(context.clock.now());
      const args = [epoch, newEpoch(), now, ttl, fence?.toString() ?? "", publish, ...entries];
      const answer = await run(stream, APPEND, args, false);
      if (answer[0] === "gone")
        throw new StreamGone(`The stream "${stream}" was deleted, or has another epoch.`);
      if (answer[0] === "fenced")
        throw new Fenced(`A writer with a higher fencing token has appended to "${stream}". Stop writing.`);
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

    async bounds(streams) {
      const all: (Bounds | undefined)[] = [];
      for (let at = 0; at < streams.length; at += BATCH_SIZE) {
        const args = () => [String(context.clock.now()), publish];
        const answers = await runForAll<string[]>(streams.slice(at, at + BATCH_SIZE), BOUNDS, args);
        for (const answer of answers) all.push(answer.length === 0 ? undefined : boundsOf(answer));
      }
      return all;
    },

    watch: (stream: string, watcher: Watcher) => watchers.watch(stream, watcher),

    async open(stream, generation) {
      const now = String(context.clock.now());
      const args = [newEpoch(), ttl, generation?.toString() ?? "", now, publish];
      const answer = await run(stream, OPEN, args);
      if (answer[0] === "gone") throw new StreamGone(`The stream "${stream}" belongs to a newer generation.`);
      const bounds = boundsOf(answer);
      if (answer[4] === "1")
        context.log.info(
          { stream, skipped: String(bounds.head.seq - bounds.floor) },
          "the consumer group ui was created at the end of the stream",
        );
      return bounds;
    },

    bookmark: (stream, { time, seq }) => bookmarks.write({ stream, time, seq }),

    async trim(stream, { since, entries, bytes, upTo }: Retention) {
      const limits = [since, entries, bytes].map((limit) => limit?.toString() ?? "");
      let removed = 0;
      for (let batch = 0; batch < MAX_TRIM_BATCHES; batch++) {
        // Idempotent: a repeated trim removes only the rest.
        const [trimmed, more] = (
          await run(stream, TRIM, [...limits, String(TRIM_BATCH), upTo?.toString() ?? ""])
        ).map(Number);
        removed += trimmed!;
        if (!more) break;
      }
      return removed;
    },

    async delete(stream, generation) {
      // Not repeatable: it could delete a stream that was created again.
      await run(stream, DELETE, [publish, generation?.toString() ?? ""], false);
    },

    async adopt(stream, generation, { epoch, floor, entries }) {
      if (entries.length === 0) return;
      const pairs = entries.flatMap(({ time, seq, data }) => [`${time}-${seq}`, data]);
      const [answer] = await run(stream, ADOPT, [epoch, String(floor), ttl, String(generation), ...pairs]);
      if (answer === "foreign" || answer === "gap")
        throw new StreamGone(
          `The stream "${stream}" exists already with another epoch or without earlier entries.`,
        );
    },

    state() {
      const all = router.state();
      return {
        backend: server.cluster ? "redis cluster" : "redis",
        version: server.version,
        ready: all.length > 0 && all.every((node) => node.commands && node.subscriber),
        nodes: all,
      };
    },

    async stop() {
      await Promise.all([router.stop(), bookmarks.drain()]);
    },
  };
}

function checkName(stream: string): void {
  if (/[{}]/.test(stream)) throw new KhalaError("invalid_request", "A stream name may not contain braces.");
}

function boundsOf([epoch, seq, time, floor]: readonly string[]): Bounds {
  return { epoch: epoch!, floor: BigInt(floor!), head: { seq: BigInt(seq!), time: Number(time) } };
}

function positionOf(id: string): Position {
  const dash = id.indexOf("-");
  return { time: Number(id.slice(0, dash)), seq: BigInt(id.slice(dash + 1)) };
}

/** The properties of the Redis server. */
export interface RedisServer {
  readonly version: string;
  readonly cluster: boolean;
  /** Uses sharded pub/sub: a cluster of Redis 7 or later. */
  readonly sharded: boolean;
}

/** Reads the properties of the first reachable server, and refuses a version that is too old. */
export async function probeServer(context: Context, settings: RedisSettings): Promise<RedisServer> {
  let problem: Error | undefined;
  for (const address of settings.target.addresses) {
    const connection = new RedisConnection(context, settings, address);
    try {
      const info = parseInfo(await connection.call((redis) => redis.info()));
      return describe(context, connection.name, info, settings.target.cluster);
    } catch (error) {
      if (error instanceof KhalaError && error.code === "invalid_request") throw error;
      problem = redisError(error as Error, connection.name);
    } finally {
      connection.close();
    }
  }
  throw problem!;
}

function describe(
  context: Context,
  name: string,
  info: ReadonlyMap<string, string>,
  wanted: boolean,
): RedisServer {
  const version = info.get("redis_version") ?? "0";
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major < 6 || (major === 6 && minor < 2))
    throw new KhalaError(
      "invalid_request",
      `Redis (${name}) is version ${version}. Use 6.2 or later, or Valkey.`,
    );
  const cluster = info.get("cluster_enabled") === "1";
  if (wanted && !cluster)
    throw new KhalaError("invalid_request", `Redis (${name}) is not a cluster. Use redis://${name}.`);
  const policy = info.get("maxmemory_policy") ?? "noeviction";
  if (policy !== "noeviction" && info.get("maxmemory") !== "0")
    context.log.warn(
      { redis: name, policy },
      "Redis evicts keys when it is full, and conversations with them: set maxmemory-policy to noeviction",
    );
  return { version, cluster, sharded: cluster && major >= 7 };
}

function parseInfo(text: string): ReadonlyMap<string, string> {
  const lines = text.split(/\r?\n/).filter((line) => line.includes(":"));
  return new Map(lines.map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]));
}
