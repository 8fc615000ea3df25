import { artifactKey, KhalaError, partitionOf, recordKey } from "@khala/contracts";
import {
  type Artifact,
  type BoardObserver,
  type Context,
  conflict,
  GroupCommit,
  type Outcome,
  recordSpan,
  type Service,
  sameContent,
  sha256,
  type Task,
} from "@khala/server/blackboard";
import type { BrokerWatch } from "../client/broker_watch.ts";
import type { Producers } from "../producers/producers.ts";
import type { ResolvedSettings } from "../settings.ts";
import { artifactRecord, byIdKey, byIdRecord, type Outgoing, sizeOf, taskRecord } from "../topics/records.ts";
import { largestTask, type TopicNames } from "../topics/topics.ts";
import type { Views } from "../views/views.ts";

/** The outcome of an artifact's publication. */
export type Published = "published" | "duplicate";

export interface PublisherOptions {
  readonly producers: Producers;
  readonly settings: ResolvedSettings;
  readonly names: TopicNames;
  readonly agents: readonly string[];
  readonly views: Pick<Views, "version" | "wrote" | "known">;
  readonly observer: Pick<BoardObserver, "published">;
  readonly watch: Pick<BrokerWatch, "requireBrokers" | "whileReachable">;
}

/** Writes artifacts and tasks; concurrent calls share a transaction. */
export interface Publisher extends Service {
  publish(artifacts: readonly Artifact[]): Promise<readonly Published[]>;
  enqueue(tasks: readonly Task[]): Promise<void>;
}

interface Encoded {
  readonly artifact: Artifact;
  readonly json: string;
  readonly records: readonly [log: Outgoing, byId: Outgoing];
}

interface Write {
  readonly artifacts: readonly Encoded[];
  /** Artifacts already on the board, with the same content. */
  readonly compared: ReadonlySet<Artifact>;
  readonly tasks: readonly Outgoing[];
  readonly bytes: number;
}

type Judged = { readonly ok: readonly Published[] | undefined } | { readonly error: unknown };

const NONE: ReadonlySet<Artifact> = new Set();
const MAX_WRITES = 1_000;
const MAX_BYTES = 8 * 1_048_576;
const MAX_WAITING_BYTES = 64 * 1_048_576;

/** Opens the publisher of a board. */
export function openPublisher(
  context: Context,
  { producers, settings, names, agents, views, observer, watch }: PublisherOptions,
): Publisher {
  const known = new Set(agents);
  /** Undefined if nothing was written, as an existing artifact was not compared yet. */
  const commits = new GroupCommit<Write, readonly Published[] | undefined>({
    maxItems: MAX_WRITES,
    maxBytes: MAX_BYTES,
    maxWaitingBytes: MAX_WAITING_BYTES,
    sizeOf: ({ bytes }) => bytes,
    commit,
  });

  async function commit(writes: readonly Write[]): Promise<readonly Outcome[]> {
    const from = context.clock.now();
    const fresh = new Map<string, Artifact>();
    const outcomes = writes.map((write) => judged(write, fresh));
    const published = writes.flatMap(({ artifacts }, i) => {
      const outcome = outcomes[i]!;
      return "ok" in outcome ? artifacts.filter((_, j) => outcome.ok?.[j] === "published") : [];
    });
    const records = [...published.flatMap(({ records }) => records), ...writes.flatMap(({ tasks }) => tasks)];
    if (records.length > 0) {
      watch.requireBrokers();
      const transactionId = await producers
        .transaction(async (transaction) => {
          void transaction.send(records);
          return transaction.id;
        })
        .catch((error: unknown) => {
          throw forPublishers(error);
        });
      if (published.length > 0) done(published, from, transactionId);
    }
    return outcomes;
  }

  /** The outcome of a call. Its new artifacts are in `fresh` then, all of them or none. */
  function judged({ artifacts, compared }: Write, fresh: Map<string, Artifact>): Judged {
    const replaced: [key: string, before: Artifact | undefined][] = [];
    const statuses: Published[] = [];
    for (const { artifact } of artifacts) {
      const { org_id, id, version } = artifact;
      const key = byIdKey(org_id, id);
      const before = fresh.get(key);
      const newest = before?.version ?? views.version(artifact) ?? 0;
      if (newest < version) {
        fresh.set(key, artifact);
        replaced.push([key, before]);
        statuses.push("published");
        continue;
      }
      const isOther = newest === version && before && !sameContent(before, artifact);
      if (isOther || (newest === version && !before && !compared.has(artifact))) {
        for (const [each, was] of replaced.reverse()) {
          if (was) fresh.set(each, was);
          else fresh.delete(each);
        }
        return isOther ? { error: conflict(artifact) } : { ok: undefined };
      }
      statuses.push("duplicate");
    }
    return { ok: statuses };
  }

  /** Compares artifacts with those on the board in the same version, and refuses other content. */
  async function compare(artifacts: readonly Artifact[], compared: Set<Artifact>): Promise<void> {
    const known = artifacts.filter((each) => !compared.has(each) && views.version(each) === each.version);
    await Promise.all(
      known.map(async (artifact) => {
        const [there] = await views.known(artifact.org_id, [artifact.id]);
        if (there?.version === artifact.version && !sameContent(there, artifact)) throw conflict(artifact);
        compared.add(artifact);
      }),
    );
  }

  function encode(artifact: Artifact): Encoded {
    const json = JSON.stringify(artifact);
    const log = { topic: names.artifacts, record: artifactRecord(artifact, json) };
    const byId = { topic: names.byId, record: byIdRecord(artifact, json) };
    return { artifact, json, records: [log, byId] };
  }

  function done(published: readonly Encoded[], from: number, transactionId: string | undefined): void {
    const to = context.clock.now();
    const artifacts = published.map(({ artifact }) => artifact);
    for (const { artifact, json } of published) views.wrote(artifact, json);
    observer.published(artifacts);
    for (const artifact of artifacts) {
      if (!artifact.traceparent) continue;
      recordSpan(context.telemetry, artifact.traceparent, {
        name: `send ${names.artifacts}`,
        from,
        to,
        org: artifact.org_id,
        attributes: {
          "messaging.system": "kafka",
          "messaging.operation.type": "send",
          "messaging.destination.name": names.artifacts,
          "kafka.topic": names.artifacts,
          partition: partitionOf(
            recordKey(artifact.org_id, artifactKey(artifact, sha256)),
            settings.partitions,
          ),
          ...(transactionId !== undefined && { transaction_id: transactionId }),
          "artifact.id": artifact.id,
          "artifact.type": artifact.type,
          ...(artifact.correlation_id && { correlation_id: artifact.correlation_id }),
        },
      });
    }
  }

  return {
    async publish(artifacts) {
      if (artifacts.length === 0) return [];
      const encoded = artifacts.map(encode);
      const sizes = encoded.map(({ records: [log] }) => sizeOf(log.record));
      refuseLarge(sizes, settings.maxRecordBytes, "artifacts");
      const compared = new Set<Artifact>();
      const write = { artifacts: encoded, compared, tasks: [], bytes: 2 * sum(sizes) };
      // As a rule none of it exists. Each round has compared something more.
      return watch.whileReachable(async () => {
        for (;;) {
          const statuses = await commits.write(write);
          if (statuses) return statuses;
          await compare(artifacts, compared);
        }
      });
    },
    async enqueue(tasks) {
      const stranger = tasks.find(({ agent }) => !known.has(agent));
      if (stranger) throw new KhalaError("not_found", `There is no agent "${stranger.agent}".`);
      if (tasks.length === 0) return;
      const records = tasks.map((task) => ({ topic: names.tasks(task.agent), record: taskRecord(task) }));
      const sizes = records.map(({ record }) => sizeOf(record));
      refuseLarge(sizes, largestTask(settings), "tasks");
      const write = { artifacts: [], compared: NONE, tasks: records, bytes: sum(sizes) };
      await watch.whileReachable(() => commits.write(write));
    },
    stop: () => commits.drain(),
  };
}

function refuseLarge(sizes: readonly number[], max: number, field: string): void {
  const items = sizes.flatMap((size, index) =>
    size > max ? [{ index, field, message: `has ${size} bytes as a record; the limit is ${max}` }] : [],
  );
  if (items.length === 0) return;
  const message = `${items.length} of ${sizes.length} artifacts are too large for the board. Send less, or store the content elsewhere and publish a link.`;
  throw new KhalaError("payload_too_large", message, { field, items });
}

function sum(sizes: readonly number[]): number {
  return sizes.reduce((total, size) => total + size, 0);
}

/** A publisher holds no lease that could be stale: the caller can simply retry. */
function forPublishers(error: unknown): unknown {
  if (!(error instanceof KhalaError) || error.code !== "stale_producer") return error;
  return new KhalaError(
    "unavailable",
    `${error.message} Try again.`,
    { retry_after_ms: 500 },
    { cause: error },
  );
}
