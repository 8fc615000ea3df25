import { pooled } from "../../kit/pooled.ts";
import { serve } from "../../kit/program.ts";
import { percentile } from "../../kit/stats.ts";
import { centrifugoClient, type Follower, keepAlive, khalaClient } from "../clients.ts";
import { docKey, runSummaryText } from "../documents.ts";
import { centrifugoPublisher } from "./centrifugo_publisher.ts";
import { khalaPublisher } from "./khala_publisher.ts";

export interface LatencyOpen {
  readonly kind: "khala" | "centrifugo";
  readonly port: number;
  readonly sockets: number;
  /** Khala: one per socket, of `user_<n>`, and the database to write to. */
  readonly tokens?: readonly string[];
  readonly url?: string;
  readonly topic?: string;
}

export interface LatencyResult {
  readonly sent: number;
  readonly perSecond: number;
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
}

const RING = 65_536;
const DRAIN_MS = 20_000;

let publish: (n: number) => Promise<void> = async () => {};
let stop: () => Promise<void> = async () => {};
let sockets = 0;
let next = 0;
let arrived = 0;
let failure: Error | undefined;
let latencies: number[] = [];
const sentAt = new Float64Array(RING);

/** The document of the nth write has arrived. */
function seen(n: number): void {
  arrived++;
  latencies.push(performance.now() - sentAt[n % RING]!);
}

function follow(frame: (data: Buffer) => void): Follower {
  return {
    updates: (_, data) => frame(data),
    lost(reason) {
      failure ??= reason;
    },
  };
}

const methods = {
  async open(options: LatencyOpen): Promise<void> {
    const { port } = options;
    ({ sockets } = options);
    if (options.kind === "khala") {
      const writer = await khalaPublisher(options.url!);
      stop = () => writer.stop();
      publish = (n) => writer.publish(n, [`user_${n % sockets}`]);
      const follower = follow((frame) => {
        const [, , , , { update_batch }] = JSON.parse(frame.toString());
        for (const { payload } of update_batch.updates) seen(Number(/\d+/.exec(payload.title)![0]));
      });
      const clients = await pooled(sockets, 50, (n) => khalaClient(port, options.tokens![n]!, follower));
      await pooled(sockets, 50, (n) => clients[n]!.subscribe(options.topic!));
      keepAlive(() => clients);
      return;
    }
    const send = centrifugoPublisher(port);
    publish = (n) => {
      const key = n % sockets;
      const document = runSummaryText(key, n);
      return send(`user_${key}`, `{"doc_key":"${docKey(key)}","doc_version":"${n}","payload":${document}}`);
    };
    const follower = follow((frame) => {
      for (const line of frame.toString().split("\n")) {
        const { push } = line ? JSON.parse(line) : {};
        if (push) seen(push.pub.data.payload.steps);
      }
    });
    await pooled(sockets, 50, (n) => centrifugoClient(port, `user_${n}`, follower));
  },

  /** Sends `rate` updates a second whether or not the ones before have arrived, each to one socket in turn. */
  async run({ rate, ms }: { rate: number; ms: number }): Promise<LatencyResult> {
    latencies = [];
    const before = { next, arrived };
    const started = performance.now();
    await new Promise<void>((resolve, reject) => {
      const timer = setInterval(() => {
        const elapsed = performance.now() - started;
        if (failure) {
          clearInterval(timer);
          return reject(failure);
        }
        const due = Math.floor((Math.min(elapsed, ms) * rate) / 1_000) - (next - before.next);
        for (let i = 0; i < due; i++) {
          const n = next++;
          sentAt[n % RING] = performance.now();
          publish(n).catch(reject);
        }
        if (elapsed >= ms && arrived - before.arrived >= next - before.next) {
          clearInterval(timer);
          resolve();
        } else if (elapsed > ms + DRAIN_MS) {
          clearInterval(timer);
          reject(new Error(`${next - before.next - (arrived - before.arrived)} updates did not arrive.`));
        }
      }, 1);
    });
    const sent = next - before.next;
    latencies.sort((a, b) => a - b);
    return {
      sent,
      perSecond: sent / (ms / 1_000),
      p50: percentile(latencies, 0.5),
      p99: percentile(latencies, 0.99),
      max: latencies.at(-1)!,
    };
  },
};

/** What this program can be asked. */
export type LatencyLoad = typeof methods;

serve(methods, () => stop());
