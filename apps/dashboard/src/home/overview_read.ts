import type { KhalaClient } from "@khala/client";

type Wire = Awaited<ReturnType<KhalaClient["ops"]["overview"]>>;

/** How a plane is, in the server's words. */
export interface PlaneHealth {
  readonly state: string;
  /** What is wrong and what to do; empty when nothing is. */
  readonly message: string;
}

/** The overview with nothing missing and figures as numbers. */
export interface Overview {
  readonly at: number;
  readonly uptimeMs: number;
  readonly process: { readonly rssBytes: number; readonly cpuPercent: number; readonly loopMs: number };
  readonly sync: PlaneHealth & {
    readonly perSecond: number;
    readonly topics: number;
    readonly lag: number;
    readonly subscribers: number;
    readonly resyncs: number;
  };
  readonly conversations: PlaneHealth & {
    readonly engine: string;
    readonly perSecond: number;
    readonly open: number;
    readonly sockets: number;
    readonly running: number;
    readonly resyncs: number;
    readonly failed: number;
  };
  readonly blackboard: PlaneHealth & {
    readonly engine: string;
    readonly perSecond: number;
    readonly publishedPerSecond: number;
    readonly lag: number;
    readonly waiting: number;
    readonly running: number;
    readonly retried: number;
    readonly dead: number;
    readonly agents: number;
    readonly paused: number;
  };
  readonly gateway: {
    readonly sockets: number;
    readonly messagesPerSecond: number;
    readonly bytesPerSecond: number;
    readonly slowCloses: number;
    readonly errorsPerSecond: number;
    readonly refused: number;
  };
}

const figure = (value: number | string | undefined) => Number(value ?? 0);
const health = ({ state = "ok", message = "" }: { state?: string; message?: string }) => ({ state, message });

/** Reads an overview of the wire. */
export function readOverview(wire: Wire): Overview {
  const { process = {}, sync = {}, conversations = {}, blackboard = {}, gateway = {} } = wire;
  return {
    at: Date.parse(wire.at ?? "") || 0,
    uptimeMs: figure(wire.uptime_s) * 1000,
    process: {
      rssBytes: figure(process.rss_bytes),
      cpuPercent: figure(process.cpu_percent),
      loopMs: figure(process.event_loop_p99_ms),
    },
    sync: {
      ...health(sync),
      perSecond: figure(sync.updates_per_s),
      topics: figure(sync.topics),
      lag: figure(sync.lag),
      subscribers: figure(sync.subscribers),
      resyncs: figure(sync.resyncs),
    },
    conversations: {
      ...health(conversations),
      engine: conversations.engine ?? "",
      perSecond: figure(conversations.events_per_s),
      open: figure(conversations.readers),
      sockets: figure(conversations.sockets),
      running: figure(conversations.running),
      resyncs: figure(conversations.resyncs),
      failed: figure(conversations.failed),
    },
    blackboard: {
      ...health(blackboard),
      engine: blackboard.engine ?? "",
      perSecond: figure(blackboard.tasks_per_s),
      publishedPerSecond: figure(blackboard.published_per_s),
      lag: figure(blackboard.lag),
      waiting: figure(blackboard.waiting),
      running: figure(blackboard.running),
      retried: figure(blackboard.retried),
      dead: figure(blackboard.dead),
      agents: figure(blackboard.agents),
      paused: figure(blackboard.paused),
    },
    gateway: {
      sockets: figure(gateway.sockets),
      messagesPerSecond: figure(gateway.messages_per_s),
      bytesPerSecond: figure(gateway.bytes_per_s),
      slowCloses: figure(gateway.slow_closes),
      errorsPerSecond: figure(gateway.errors_per_s),
      refused: figure(gateway.refused),
    },
  };
}
