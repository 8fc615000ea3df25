import { pooled } from "../../kit/pooled.ts";
import { serve } from "../../kit/program.ts";
import {
  type Client,
  centrifugoClient,
  type Follower,
  type KhalaClient,
  keepAlive,
  khalaClient,
  type WireCursor,
} from "../clients.ts";

let khala: KhalaClient[] = [];
let clients: Client[] = [];
let cursors: WireCursor[] = [];
let updates = 0;
let failure: Error | undefined;

const lost = (reason: Error) => {
  failure ??= reason;
};
const follower: Follower = { updates() {}, lost };
/** The first socket looks into its frames. */
const counting: Follower = {
  updates(_, frame) {
    const [, , , , { update_batch }] = JSON.parse(frame.toString());
    updates += update_batch.updates.length;
  },
  lost,
};

keepAlive(() => clients);

const methods = {
  /** Connects one socket per token, and joins the sync channel. */
  async khala({ port, tokens }: { port: number; tokens: readonly string[] }): Promise<void> {
    khala = await pooled(tokens.length, 100, (n) =>
      khalaClient(port, tokens[n]!, n === 0 ? counting : follower),
    );
    clients = khala;
  },

  /** Subscribes every socket from now on, and remembers where each stands. */
  async subscribe({ topic }: { topic: string }): Promise<void> {
    await pooled(khala.length, 100, (n) => khala[n]!.subscribe(topic));
    cursors = khala.map((client) => client.cursor!);
  },

  /** Subscribes every socket at once from where it stood. Resolves when the last one is live, with what the first was sent. */
  async resume({ topic }: { topic: string }): Promise<{ ms: number; updates: number }> {
    updates = 0;
    const started = performance.now();
    await Promise.all(khala.map((client, n) => client.subscribe(topic, cursors[n])));
    return { ms: performance.now() - started, updates };
  },

  async centrifugo({
    port,
    sockets,
    channel,
  }: {
    port: number;
    sockets: number;
    channel?: string;
  }): Promise<void> {
    clients = await pooled(sockets, 100, () => centrifugoClient(port, channel, follower));
  },

  /** Closes all sockets; an error if one was closed before. */
  async disconnect(): Promise<void> {
    if (failure) throw failure;
    for (const client of clients) client.close();
    khala = [];
    clients = [];
  },
};

/** What this program can be asked. */
export type SocketLoad = typeof methods;

serve(methods);
