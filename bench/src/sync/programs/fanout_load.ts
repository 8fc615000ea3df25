import { pooled } from "../../kit/pooled.ts";
import { serve } from "../../kit/program.ts";
import { percentile } from "../../kit/stats.ts";
import {
  bareClient,
  centrifugoClient,
  type Follower,
  type Kind,
  keepAlive,
  khalaClient,
  socketioClient,
} from "../clients.ts";
import { docKey, KEYS, runSummaryText } from "../documents.ts";
import { centrifugoPublisher } from "./centrifugo_publisher.ts";
import { byteSender } from "./control.ts";

export interface FanoutOpen {
  readonly kind: Kind;
  readonly port: number;
  readonly sockets: number;
  /** Khala: one per socket. */
  readonly tokens?: readonly string[];
  readonly topic?: string;
  /** Where a byte asks for a broadcast; Centrifugo is asked over HTTP. */
  readonly control?: number;
}

export interface FanoutResult {
  readonly deliveries: number;
  readonly seconds: number;
  readonly p50: number;
  readonly p99: number;
  readonly updatesPerFrame: number;
  /** The frames that the first socket got, and how many updates each brought. */
  readonly frames: Uint8Array[];
  readonly sizes: number[];
}

/** More updates than are ever in flight. */
const RING = 4_096;
/** Every so many sockets, the latency of each delivery is taken. */
const SAMPLED = 50;
const KEPT_FRAMES = 64;
const DRAIN_MS = 30_000;

let sockets = 0;
let publish: () => void = () => {};
/** How many updates the next broadcast brings: more than one only where frames are ready-made. */
let nextSize = () => 1;
let setSizes: (sizes: readonly number[]) => void = () => {};

const publishedAt = new Float64Array(RING);
const missing = new Int32Array(RING);
let received = new Int32Array(0);
let published = 0;
let completed = 0;
let latencies: number[] = [];
let frames: Uint8Array[] = [];
let sizes: number[] = [];
let frameCount = 0;
let onProgress: () => void = () => {};
let failure: Error | undefined;

function delivered(socket: number, count: number, frame: Buffer): void {
  const from = received[socket]!;
  received[socket] = from + count;
  const now = performance.now();
  let finished = false;
  for (let update = from; update < from + count; update++) {
    const slot = update % RING;
    if (socket % SAMPLED === 0) latencies.push(now - publishedAt[slot]!);
    if (--missing[slot]! === 0) {
      completed++;
      finished = true;
    }
  }
  if (socket === 0) {
    frameCount++;
    if (frames.length < KEPT_FRAMES) {
      frames.push(new Uint8Array(frame));
      sizes.push(count);
    }
  }
  if (finished) onProgress();
}

const failed = (error: Error) => {
  failure = error;
  onProgress();
};

const methods = {
  async open(options: FanoutOpen): Promise<void> {
    const { kind, port, tokens, control } = options;
    ({ sockets } = options);
    received = new Int32Array(sockets);
    const on = (socket: number): Follower => ({
      updates: (count, frame) => delivered(socket, count, frame),
      lost: failed,
    });
    switch (kind) {
      case "khala": {
        publish = await byteSender(control!);
        const clients = await pooled(sockets, 50, (n) => khalaClient(port, tokens![n]!, on(n)));
        await pooled(sockets, 50, (n) => clients[n]!.subscribe(options.topic!));
        keepAlive(() => clients);
        return;
      }
      case "centrifugo": {
        const send = centrifugoPublisher(port);
        publish = () => {
          const key = published % KEYS;
          const document = runSummaryText(key, published);
          const data = `{"doc_key":"${docKey(key)}","doc_version":"${published}","payload":${document}}`;
          void send("bench", data).catch(failed);
        };
        await pooled(sockets, 50, (n) => centrifugoClient(port, "bench", on(n)));
        return;
      }
      case "socketio":
        publish = await byteSender(control!);
        await pooled(sockets, 50, (n) => socketioClient(port, on(n)));
        return;
      case "ws": {
        publish = await byteSender(control!);
        const clients = await pooled(sockets, 50, (n) => bareClient(port, on(n)));
        let ready: readonly number[] = [1];
        let sent = 0;
        nextSize = () => ready[sent++ % ready.length]!;
        setSizes = (next) => {
          ready = next;
          sent = 0;
          for (const client of clients) client.expect(next);
        };
      }
    }
  },

  async expect({ sizes: next }: { sizes: readonly number[] }): Promise<void> {
    setSizes(next);
  },

  /** Keeps `window` updates in flight for `ms`; an update is in flight until every socket has it. */
  async run({ window, ms }: { window: number; ms: number }): Promise<FanoutResult> {
    latencies = [];
    frames = [];
    sizes = [];
    frameCount = 0;
    const before = completed;
    const started = performance.now();
    let size = nextSize();
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("Deliveries are missing.")), ms + DRAIN_MS);
      onProgress = () => {
        if (failure) return reject(failure);
        const now = performance.now();
        if (now < started + ms) {
          while (published === completed || published - completed + size <= window) {
            for (let i = 0; i < size; i++) {
              publishedAt[published % RING] = now;
              missing[published++ % RING] = sockets;
            }
            publish();
            size = nextSize();
          }
        } else if (published === completed) {
          clearTimeout(timer);
          resolve();
        }
      };
      onProgress();
    });
    const seconds = (performance.now() - started) / 1_000;
    const updates = completed - before;
    latencies.sort((a, b) => a - b);
    return {
      deliveries: updates * sockets,
      seconds,
      p50: percentile(latencies, 0.5),
      p99: percentile(latencies, 0.99),
      updatesPerFrame: updates / frameCount,
      frames,
      sizes,
    };
  },
};

/** What this program can be asked. */
export type FanoutLoad = typeof methods;

serve(methods);
