import type { AgentCounts, Board, BoardOptions, Context, Service } from "@khala/server/blackboard";
import { openKafkaClient } from "./client.ts";
import { type AgentWork, consumeTasks } from "./consumer.ts";
import { openGroupOffsets } from "./group_offsets.ts";
import { openProducers } from "./producers.ts";
import { openPublisher } from "./publisher.ts";
import { openRetryCounts } from "./retry_counts.ts";
import { startRetryTier } from "./retry_tiers.ts";
import { startRouter } from "./router.ts";
import { type KafkaBoardSettings, resolveSettings } from "./settings.ts";
import { supervise } from "./supervised.ts";
import { createOrVerifyTopics } from "./topic_setup.ts";
import { topicNames, topicSpecs } from "./topics.ts";
import { openViews } from "./views.ts";

/** What may be of one partition of an agent's tasks in this process. */
const LIMITS = { records: 1_000, bytes: 16 * 1_048_576, span: 10_000 };
const DRAIN_MS = 30_000;
const LEAVE_MS = 5_000;

/** Opens a board on Kafka: its topics are there and as they must be, and its index is read to the end. */
export async function openBoard(
  context: Context,
  options: BoardOptions & KafkaBoardSettings,
): Promise<Board> {
  const settings = resolveSettings(options);
  const { kafka, replication, retryDelaysMs, sessionTimeoutMs, readCommitted } = settings;
  const names = topicNames(settings);
  const agents = options.agents.map(({ agent }) => agent);
  const opened: Service[] = [];
  const closing = async () => {
    // What writes stops before what it writes with.
    for (const service of opened.splice(0).reverse()) await service.stop();
  };
  try {
    const client = await openKafkaClient(kafka);
    const admin = client.admin();
    await admin.connect();
    opened.push({ stop: () => admin.disconnect() });
    await createOrVerifyTopics(context, admin, {
      kafka,
      specs: topicSpecs(settings, names, agents),
      replication,
    });
    const producers = openProducers(context, client, settings);
    opened.push(producers);
    const groups = await openGroupOffsets(context, kafka);
    opened.push(groups);
    const views = await openViews(context, { admin, groups, settings, names, agents });
    opened.push(views);
    const retries = await openRetryCounts(
      context,
      kafka,
      admin,
      groups,
      names,
      retryDelaysMs,
      `${settings.prefix}views`,
    );
    opened.push(retries);
    const { observer, route } = options;
    const publisher = openPublisher(context, { producers, settings, names, agents, views, observer });
    opened.push(publisher);
    const common = { kafka, producers, names, readCommitted, sessionTimeoutMs };
    if (options.routes) {
      const readers = [
        supervise(context, "router", (onFailure) =>
          startRouter(context, { ...common, route, observer, onFailure }),
        ),
        ...retryDelaysMs.map((delayMs) =>
          supervise(context, `retry ${delayMs}`, (onFailure) =>
            startRetryTier(context, { ...common, delayMs, delaysMs: retryDelaysMs, onFailure }),
          ),
        ),
      ];
      opened.push({ stop: async () => void (await Promise.all(readers.map((reader) => reader.stop()))) });
    }
    const works = new Set<AgentWork>();
    opened.push({
      async stop() {
        await Promise.all([...works].map((work) => work.stop()));
      },
    });

    const counts = async (): Promise<AgentCounts[]> => {
      const [lags, retried] = await Promise.all([views.lag(), retries.count()]);
      return agents.map((agent) => {
        const own = [...works].filter((work) => work.agent === agent);
        const running = own.reduce((sum, work) => sum + work.running, 0);
        const ahead = own.reduce((sum, work) => sum + work.ahead, 0);
        const lag = lags
          .filter(({ reader }) => reader === agent)
          .reduce((sum, each) => sum + Number(each.lag ?? 0), 0);
        const waiting = Math.max(0, lag - running - ahead) + (retried.get(agent) ?? 0);
        return { agent, waiting, running, dead: views.deadCount(agent) };
      });
    };

    let stopped: Promise<void> | undefined;
    return {
      publish: (artifacts) => publisher.publish(artifacts),
      enqueue: (tasks) => publisher.enqueue(tasks),
      get: (id) => views.get(id),
      recent: (query) => views.recent(query),
      consume(consumer) {
        const work = consumeTasks(
          context,
          {
            kafka,
            producers,
            observer,
            rules: {
              agent: consumer.agent,
              strict: consumer.strict,
              names,
              retryDelaysMs,
              version: (id) => views.version(id),
              wrote: (outputs) => views.wrote(outputs),
            },
            groupId: names.agentGroup(consumer.agent),
            topic: names.tasks(consumer.agent),
            readCommitted,
            sessionTimeoutMs,
            limits: LIMITS,
            marks: {
              kafka,
              admin,
              topic: names.processed,
              group: `${names.agentGroup(consumer.agent)}.marks`,
            },
            drainMs: DRAIN_MS,
            leaveMs: LEAVE_MS,
          },
          consumer,
        );
        works.add(work);
        return {
          async stop() {
            await work.stop();
            works.delete(work);
          },
        };
      },
      lag: () => views.lag(),
      counts,
      correlations: async (ids) => views.correlations(ids),
      deadLetters: (agent, query) => views.deadLetters(agent, query),
      deadLetter: (agent, id) => views.deadLetter(agent, id),
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
