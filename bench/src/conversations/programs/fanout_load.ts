import { Redis } from "ioredis";
import { pooled } from "../../kit/pooled.ts";
import { serve } from "../../kit/program.ts";
import { openSocketioPublisher, redisStreamsAdapter } from "../../kit/socketio.ts";
import { percentile } from "../../kit/stats.ts";
import { socketioClient } from "../../sync/clients.ts";
import { convId, type Store } from "../bench.ts";
import { conversationClient } from "../clients.ts";
import { tokenEntry } from "../entries.ts";
import { openChatLog } from "./chat_log.ts";

export interface FanoutResult {
  readonly deliveries: number;
  readonly seconds: number;
  readonly p50: number;
  readonly p99: number;
}

/** More tokens than are ever in flight. */
const RING = 4_096;
/** Every so many sockets, the latency of each delivery is taken. */
const SAMPLED = 50;
const DRAIN_MS = 30_000;
/** As long as a cursor of Khala's. */
const CURSOR = "0198c0de-0000-7000-8000-000000000003.1760000000000-";

let sockets = 0;
let publish: () => Promise<void> = async () => {};
let stop: () => Promise<void> | void = () => {};
const publishedAt = new Float64Array(RING);
const missing = new Int32Array(RING);
let received = new Int32Array(0);
let published = 0;
let completed = 0;
let latencies: number[] = [];
let failure: Error | undefined;
let onProgress: () => void = () => {};

function delivered(socket: number): void {
  const slot = received[socket]!++ % RING;
  if (socket % SAMPLED === 0) latencies.push(performance.now() - publishedAt[slot]!);
  if (--missing[slot]! > 0) return;
  completed++;
  onProgress();
}

function lost(reason: Error): void {
  failure ??= reason;
  onProgress();
}

const methods = {
  /** All sockets belong to one person, and follow one conversation. */
  async khala(options: { port: number; token: string; sockets: number; store: Store }): Promise<void> {
    ({ sockets } = options);
    received = new Int32Array(sockets);
    const log = await openChatLog(options.store);
    stop = () => log.stop();
    publish = () => log.append(convId(0), tokenEntry());
    await pooled(sockets, 50, (n) =>
      conversationClient(options.port, options.token, convId(0), { event: () => delivered(n), lost }),
    );
  },

  /** This process is another server of the same Socket.IO cluster, and has no sockets. */
  async socketio(options: { port: number; sockets: number; redis: string }): Promise<void> {
    ({ sockets } = options);
    received = new Int32Array(sockets);
    const client = new Redis(options.redis, { protocol: 2 });
    const io = await openSocketioPublisher(await redisStreamsAdapter(client));
    stop = () => client.disconnect();
    publish = async () => {
      const { run_id, event } = JSON.parse(tokenEntry());
      const frame = { seq: `${published}`, cursor: `${CURSOR}${published}`, run_id, event };
      io.to(convId(0)).emit("event", frame);
    };
    await pooled(sockets, 50, (n) => socketioClient(options.port, { updates: () => delivered(n), lost }));
  },

  /** Keeps `window` tokens in flight for `ms`; a token is in flight until every socket has it. */
  async run({ window, ms }: { window: number; ms: number }): Promise<FanoutResult> {
    latencies = [];
    const before = completed;
    const started = performance.now();
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("Deliveries are missing.")), ms + DRAIN_MS);
      onProgress = () => {
        if (failure) return reject(failure);
        const now = performance.now();
        if (now < started + ms) {
          while (published - completed < window) {
            publishedAt[published % RING] = now;
            missing[published++ % RING] = sockets;
            publish().catch(lost);
          }
        } else if (published === completed) {
          clearTimeout(timer);
          resolve();
        }
      };
      onProgress();
    });
    const seconds = (performance.now() - started) / 1_000;
    latencies.sort((a, b) => a - b);
    return {
      deliveries: (completed - before) * sockets,
      seconds,
      p50: percentile(latencies, 0.5),
      p99: percentile(latencies, 0.99),
    };
  },
};

/** What this program can be asked. */
export type FanoutLoad = typeof methods;

serve(methods, () => stop());
