import {
  type AgentCounts,
  type Board,
  type BoardOptions,
  type Context,
  type DeadLetterName,
  type Service,
  withTimeout,
} from "@khala/server/blackboard";
import { abandonBlockingCalls, exitWithoutWaiting } from "./client/blocking_calls.ts";
import { openBrokerWatch, type WatchedKafka } from "./client/broker_watch.ts";
import { listTopics, openKafkaClient, withAdmin } from "./client/client.ts";
import { openClusterOffsets } from "./client/cluster_offsets.ts";
import { type AgentWork, consumeTasks } from "./flow/agent_session.ts";
import { openPublisher } from "./flow/publisher.ts";
import { openRetryCounts } from "./flow/retry_counts.ts";
import { startRetryTier } from "./flow/retry_tiers.ts";
import { startRouter } from "./flow/router.ts";
import { supervise } from "./flow/supervise.ts";
import { openProducers } from "./producers/open_producers.ts";
import { type KafkaBoardSettings, resolveSettings } from "./settings.ts";
import { createOrVerifyTopics } from "./topics/topic_setup.ts";
import { largestTask, topicNames, topicSpecs } from "./topics/topics.ts";
import { openTaskCounts } from "./views/task_counts.ts";
import { openViews } from "./views/views.ts";

/** The limits of one partition of an agent's tasks in this process. */
const LIMITS = { records: 1_000, bytes: 16 * 1_048_576, span: 10_000 };
/** How long closing waits for brokers that may be gone. */
const CLOSE_MS = 5_000;
/** With more waiting tasks than this, counts may be a second old: dashboards ask several times a second. */
const MANY = 1_000;
const MANY_MS = 1_000;

/** Opens a board on Kafka: creates or verifies its topics, and reads its index to the end. */
export async function openBoard(
  context: Context,
  options: BoardOptions & KafkaBoardSettings,
): Promise<Board> {
  const resolved = resolveSettings(options);
  const { replication, drainMs, leaveMs, retryDelaysMs } = resolved;
  const { readCommitted, sessionTimeoutMs, heartbeatMs } = resolved;
  const names = topicNames(resolved);
  const agents = options.agents.map(({ agent }) => agent);
  const opened: Service[] = [];
  const closing = async () => {
    exitWithoutWaiting();
    await stopWithin(context, CLOSE_MS, "the board", async () => {
      // Writers stop before the producers they use.
      for (const service of opened.splice(0).reverse()) await service.stop();
    });
    abandonBlockingCalls();
  };
  try {
    const client = await openKafkaClient(resolved.kafka);
    const watch = await openBrokerWatch(context, resolved.kafka);
    opened.push(watch);
    const kafka: WatchedKafka = { ...resolved.kafka, watch };
    const settings = { ...resolved, kafka };
    const specs = topicSpecs(settings, names, agents);
    await withAdmin(kafka, (admin) => createOrVerifyTopics(context, admin, { kafka, specs, replication }));
    const producers = openProducers(context, client, settings);
    opened.push(producers);
    const offsets = await openClusterOffsets(context, kafka);
    opened.push(offsets);
    const views = await openViews(context, { offsets, settings, names, agents });
    opened.push(views);
    const retries = await openRetryCounts(context, { offsets, settings, names });
    opened.push(retries);
    const tasks = openTaskCounts(context, { offsets, settings, names, agents });
    opened.push(tasks);
    const { observer, route } = options;
    const publisher = openPublisher(context, {
      producers,
      settings,
      names,
      agents,
      views,
      observer,
      watch,
    });
    opened.push(publisher);
    const membership = { kafka, offsets, readCommitted, sessionTimeoutMs, heartbeatMs };
    const maxTaskBytes = largestTask(settings);
    const common = { membership, producers, names, maxTaskBytes };
    if (resolved.routes) {
      const readers = [
        supervise(context, "router", (onFailure) =>
          startRouter(context, { ...common, route, observer, onFailure }),
        ),
        ...retryDelaysMs.map((delayMs) =>
          supervise(context, `retry ${delayMs}`, (onFailure) =>
            startRetryTier(context, {
              ...common,
              observer,
              delayMs,
              delaysMs: retryDelaysMs,
              topics: specs.map(({ topic }) => topic),
              listTopics: () => listTopics(kafka),
              onFailure,
            }),
          ),
        ),
      ];
      opened.push({ stop: async () => void (await Promise.all(readers.map((reader) => reader.stop()))) });
    }
    const works = new Set<AgentWork>();
    opened.push({ stop: async () => void (await Promise.all([...works].map((work) => work.stop()))) });

    let last: { readonly at: number; readonly counts: readonly AgentCounts[] } | undefined;
    const counts = async (): Promise<readonly AgentCounts[]> => {
      const now = context.clock.now();
      const many = last?.counts.some(({ waiting }) => waiting > MANY);
      if (last && many && Math.abs(now - last.at) < MANY_MS) return last.counts;
      last = { at: now, counts: await count() };
      return last.counts;
    };

    const count = async (): Promise<AgentCounts[]> => {
      const here = Map.groupBy(works, ({ agent }) => agent);
      const sum = (agent: string, of: (work: AgentWork) => number) =>
        (here.get(agent) ?? []).reduce((total, work) => total + of(work), 0);
      const own = new Map(agents.map((agent) => [agent, sum(agent, (work) => work.running)]));
      const [lags, retried, dead, everywhere] = await Promise.all([
        views.lag(),
        retries.count(),
        deadCounts(),
        options.running?.(own) ?? own,
      ]);
      return agents.map((agent) => {
        const running = everywhere.get(agent) ?? 0;
        const ahead = sum(agent, (work) => work.ahead);
        const lag = lags
          .filter(({ reader }) => reader === agent)
          .reduce((sum, each) => sum + Number(each.lag ?? 0), 0);
        const waiting = Math.max(0, lag - running - ahead) + (retried.get(agent) ?? 0);
        return { agent, waiting, running, dead: dead.get(agent) ?? 0 };
      });
    };

    /** Replayed dead letters stay in the log, and are subtracted. */
    const withoutReplayed = async (agent: string, letters: readonly DeadLetterName[]): Promise<number> => {
      const replayed = letters.length > 0 ? ((await options.replayed?.(agent, letters)) ?? 0) : 0;
      return letters.length - replayed;
    };

    const deadCounts = async (): Promise<ReadonlyMap<string, number>> =>
      new Map(
        await Promise.all(
          [...(await views.deadNames())].map(
            async ([agent, letters]) => [agent, await withoutReplayed(agent, letters)] as const,
          ),
        ),
      );

    /** Orgs share the partitions, so tasks are counted for all of them; a dead letter names its org. */
    const countsOf: Board["countsOf"] = async (of) => {
      const [all, dead] = await Promise.all([counts(), views.deadNames()]);
      return Promise.all(
        of.map(async ({ agent, org }) => {
          const { waiting = 0, running = 0 } = all.find((each) => each.agent === agent) ?? {};
          const letters = (dead.get(agent) ?? []).filter((letter) => letter.org === org);
          return { agent, waiting, running, dead: await withoutReplayed(agent, letters) };
        }),
      );
    };

    const { get, known, recent, lag, correlations, deadLetters, deadLettersById, storedBytes } = views;
    let stopped: Promise<void> | undefined;
    return {
      get,
      known,
      recent,
      lag: () => lag(),
      correlations,
      deadLetters,
      deadLettersById,
      requireReachable: watch.requireBrokers,
      publish: publisher.publish,
      enqueue: publisher.enqueue,
      consume(consumer) {
        const work = consumeTasks(
          context,
          {
            membership,
            producers,
            observer,
            rules: {
              agent: consumer.agent,
              strict: consumer.strict,
              names,
              maxTaskBytes,
              retryDelaysMs,
              version: views.version,
              wrote: views.wrote,
            },
            groupId: names.agentGroup(consumer.agent),
            topic: names.tasks(consumer.agent),
            limits: LIMITS,
            processed: {
              kafka,
              offsets,
              topic: names.processed,
              group: `${names.agentGroup(consumer.agent)}.marks`,
            },
            drainMs,
            leaveMs,
          },
          consumer,
        );
        works.add(work);
        return {
          async stop() {
            await stopWithin(context, drainMs + CLOSE_MS, `agent ${work.agent}`, () => work.stop());
            works.delete(work);
          },
        };
      },
      counts,
      countsOf,
      waiting: tasks.waiting,
      storedBytes,
      stop() {
        stopped ??= closing();
        return stopped;
      },
    };
  } catch (error) {
    await closing();
    throw error;
  }
}

/** Stops a service within `ms`: a slower stop continues in the background. */
async function stopWithin(
  { clock, log }: Pick<Context, "clock" | "log">,
  ms: number,
  name: string,
  stop: () => Promise<void>,
): Promise<void> {
  const stopping = stop();
  const stopped = stopping.then(() => true);
  if (await withTimeout(clock, ms, stopped, false)) return;
  log.warn({ service: name }, "the brokers do not answer: stopped without a clean disconnect");
  stopping.catch((error: Error) =>
    log.warn({ err: error.message, service: name }, "it did not stop cleanly"),
  );
}
