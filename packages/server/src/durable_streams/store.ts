import { may } from "../access/access.ts";
import { commitEach } from "../database/commit_each.ts";
import type { Database } from "../database/database.ts";
import type { StoredBytes } from "../database/stored_bytes.ts";
import type { Wakeups } from "../database/wakeups.ts";
import type { Context } from "../kit/context.ts";
import { GroupCommit, type Outcome } from "../kit/group_commit.ts";
import { runLoop, type Service, Wake } from "../kit/service.ts";
import { commitAppends } from "./appends.ts";
import { type ForkRequest, forkOf } from "./forks.ts";
import { createStream, removeStream, sweep } from "./lifecycle.ts";
import type { Offset } from "./offset.ts";
import { findStream, type Page, readPage } from "./pages.ts";
import type { Append, AppendOutcome, Stream, StreamConfig, StreamName } from "./stream.ts";
import { type Watcher, Watchers } from "./watchers.ts";

/**
 * Append-only byte streams in the database, each at a path of its org. One that the caller may not use, as access/ decides,
 * does not exist for it.
 */
export interface DurableStreams extends Service {
  /** Creates a stream that starts with `data`. Undefined when it exists with another configuration. */
  create(
    name: StreamName,
    config: StreamConfig,
    data: Buffer,
    fork?: { readonly source: Stream; readonly request: ForkRequest },
  ): Promise<{ stream: Stream; created: boolean } | undefined>;
  /** Appends bytes, closes the stream, or both. Resolves after the commit. Appends of this process to a stream keep their order. */
  append(append: Append): Promise<AppendOutcome>;
  find(name: StreamName): Promise<Stream | undefined>;
  /** The page after a position, about a megabyte at most. */
  read(name: StreamName, after: Pick<Offset, "position" | "writtenAt">): Promise<Page | undefined>;
  /** Deletes the stream; false when it does not exist, "gone" when it was deleted before and is kept for its forks. */
  remove(name: StreamName): Promise<boolean | "gone">;
  watch(id: bigint): Watcher;
  /** To be called for a wakeup of another process, with the id of the stream that changed: its watchers are woken. */
  onWakeup(id: string): void;
  /** To be called when listening to wakeups begins again: some may have been lost. */
  recheck(): void;
}

export interface DurableStreamsOptions {
  readonly wakeups: Pick<Wakeups, "send">;
  /** Limits what orgs store. */
  readonly stored?: StoredBytes;
  /** The polling interval, for changes whose wakeup was lost. */
  readonly pollMs?: number;
  /** How often expired streams are removed. They are hidden at once. */
  readonly sweepMs?: number;
}

/** Wakeups about a stream begin with this. */
export const STREAM_WAKEUP = "stream:";
const MEBIBYTE = 1 << 20;

/** Opens the streams of a database. */
export function openDurableStreams(
  database: Database,
  context: Context,
  { wakeups, stored, pollMs = 500, sweepMs = 30_000 }: DurableStreamsOptions,
): DurableStreams {
  const watchers = new Watchers(database, context, pollMs);
  const sweeping = runLoop(context, "durable_streams_sweep", {
    wake: new Wake(),
    idleMs: sweepMs,
    step: () => sweep(database),
  });

  function notifyWatchers(id: bigint): void {
    watchers.changed(id);
    wakeups.send(`${STREAM_WAKEUP}${id}`);
  }

  async function commit(appends: readonly Append[]): Promise<Outcome[]> {
    const { outcomes, changed } = await commitAppends(database, appends);
    for (const id of changed) notifyWatchers(id);
    return outcomes;
  }

  const commits = new GroupCommit<Append, AppendOutcome>({
    commit: (appends) => commitEach(context, appends, { commit, isIdempotent: false }),
    sizeOf: ({ data }) => data.length + 256,
    maxItems: 256,
    maxBytes: 4 * MEBIBYTE,
    maxWaitingBytes: 64 * MEBIBYTE,
  });

  return {
    async create(name, config, data, forked) {
      const fork = forked && (await forkOf(database, forked.source, forked.request));
      stored?.take(name.caller.org, "durable_streams", data.length + Number(fork?.at ?? 0n));
      return createStream(database, name, config, data, fork);
    },
    async append(append) {
      // A stream can be closed by an org that may not store more.
      if (append.data.length > 0) stored?.take(append.name.caller.org, "durable_streams", append.data.length);
      return commits.write(append);
    },
    async find(name) {
      const { org } = name.caller;
      const stream = await findStream(database, name);
      return stream && may(name.caller, "durable_stream.read", { org, owner: stream.owner })
        ? stream
        : undefined;
    },
    read: (name, after) => readPage(database, name, after),
    async remove(name) {
      const id = await removeStream(database, name);
      if (typeof id === "bigint") notifyWatchers(id);
      return id === "gone" ? id : id !== undefined;
    },
    watch: (id) => watchers.watch(id),
    onWakeup(id) {
      if (/^\d{1,18}$/.test(id)) watchers.changed(BigInt(id));
    },
    recheck: () => watchers.recheck(),
    async stop() {
      await Promise.all([watchers.stop(), sweeping.stop(), commits.drain()]);
    },
  };
}
