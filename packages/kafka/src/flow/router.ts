import {
  type Artifact,
  type BoardOptions,
  type Context,
  type RecordPosition,
  ROUTER,
  type Routing,
  type Task,
} from "@khala/server/blackboard";
import type { KafkaRecord } from "../client/client_types.ts";
import { type Batch, joinGroup, type Membership } from "../client/group.ts";
import type { Producers } from "../producers/producers.ts";
import { decodeArtifact, withTrace } from "../topics/decoding.ts";
import type { Origin } from "../topics/record_headers.ts";
import {
  deadLetterRecord,
  type Outgoing,
  positionText,
  refuseLarge,
  taskRecord,
  unreadableRecord,
} from "../topics/records.ts";
import type { TopicNames } from "../topics/topics.ts";
import type { Session } from "./supervise.ts";

export interface RouterOptions extends Pick<BoardOptions, "route" | "observer"> {
  readonly membership: Membership;
  readonly producers: Producers;
  readonly names: TopicNames;
  /** The size limit of a task, as a record. */
  readonly maxTaskBytes: number;
  onFailure(error: Error): void;
}

/** Artifacts routed in one transaction. */
const BATCH = 2_000;

interface Routed {
  readonly position: RecordPosition;
  readonly artifact?: Artifact;
  readonly routing: Routing;
  readonly outgoing: readonly Outgoing[];
}

/**
 * Makes a task of each artifact for each agent that it matches. The tasks and the offsets of their artifacts are one
 * transaction, so that an artifact is routed once.
 */
export async function startRouter(context: Context, options: RouterOptions): Promise<Session> {
  const { membership, producers, names, observer } = options;

  async function onBatches(batches: readonly Batch[]): Promise<void> {
    const routed = batches.flatMap(({ topic, partition, records }) =>
      records.map((record) =>
        routeRecord(context, options, record, { topic, partition, offset: record.offset }),
      ),
    );
    const partitions = batches.map(({ partition, records }) => ({
      partition,
      offset: String(records.at(-1)!.at + 1),
    }));
    const transactionId = await producers.transaction(async (transaction) => {
      void transaction.send(routed.flatMap(({ outgoing }) => outgoing));
      await transaction.sendOffsets(group.owner, [{ topic: names.artifacts, partitions }]);
      return transaction.id;
    });
    for (const { artifact, routing, position } of routed) {
      if (artifact)
        observer.routed(artifact, routing.tasks, { ...position, ...(transactionId && { transactionId }) });
      else observer.unreadable?.(ROUTER);
    }
  }

  await producers.ready();
  const group = await joinGroup(context, membership, {
    groupId: names.routerGroup,
    topics: [names.artifacts],
    batch: BATCH,
    onBatches,
    onFailure: options.onFailure,
  });
  return { stop: () => group.leave(), discard: () => group.leave() };
}

function routeRecord(
  context: Context,
  options: RouterOptions,
  record: KafkaRecord,
  position: RecordPosition,
): Routed {
  const origin = { ...position, timestamp: Number(record.timestamp) };
  try {
    return routeArtifact(options, record, position, origin);
  } catch (error) {
    // A record that cannot be routed is set aside, as it would block those behind it.
    const letter = unreadableRecord(context, (error as Error).message, record, position, origin);
    const outgoing = [{ topic: options.names.deadLetters(ROUTER), record: letter }];
    return { position, routing: { tasks: [], dead: [] }, outgoing };
  }
}

function routeArtifact(
  { route, names, maxTaskBytes }: RouterOptions,
  record: KafkaRecord,
  position: RecordPosition,
  origin: Origin,
): Routed {
  const decoded = decodeArtifact(record);
  if (!decoded.ok) throw new TypeError(decoded.error);
  const artifact = withTrace(decoded.value, record);
  const routing = route(artifact);
  /** An artifact that routing left unchanged need not be encoded again. */
  const jsonOf = ({ artifacts: [only, ...others] }: Task) =>
    only === decoded.value && others.length === 0 ? (record.value ?? undefined) : undefined;
  const outgoing = [
    ...routing.tasks.map((task) => ({
      topic: names.tasks(task.agent),
      record: taskRecord(task, jsonOf(task)),
    })),
    ...routing.dead.map((letter) => ({
      topic: names.deadLetters(letter.agent),
      record: deadLetterRecord({ ...letter, origin: positionText(position) }, origin),
    })),
  ];
  refuseLarge(outgoing, maxTaskBytes);
  return { position, artifact, routing, outgoing };
}
