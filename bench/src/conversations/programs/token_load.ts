import { Redis } from "ioredis";
import { pooled } from "../../kit/pooled.ts";
import { serve } from "../../kit/program.ts";
import { convId, type Store } from "../bench.ts";
import { conversationClient } from "../clients.ts";
import { tokenAge, tokenEntry } from "../entries.ts";
import { Latencies, type Latency } from "../latencies.ts";
import { paced } from "../paced.ts";
import { type ChatLog, openChatLog } from "./chat_log.ts";

let log: ChatLog | undefined;
let conversations = 0;
let next = 0;
const latencies = new Latencies();

/** Commands that this process sent to Redis. */
let commands = 0;
const sendCommand = Redis.prototype.sendCommand;
Redis.prototype.sendCommand = function (...args) {
  commands++;
  return sendCommand.apply(this, args);
};

const methods = {
  /** Opens the log to write to. */
  async open({ store }: { store: Store }): Promise<void> {
    log = await openChatLog(store);
  },

  /** Opens a socket to a conversation of its own for each token. */
  async connect({ port, tokens }: { port: number; tokens: readonly string[] }): Promise<void> {
    conversations = tokens.length;
    const follower = {
      event: (frame: Buffer) => latencies.add(tokenAge(frame)),
      lost: (reason: Error) => latencies.fail(reason),
    };
    await pooled(conversations, 50, (n) => conversationClient(port, tokens[n]!, convId(n), follower));
  },

  /** Appends to one conversation after the other, and waits until everything has come out of the sockets. */
  async run(options: { rate: number; ms: number }): Promise<Latency & { sent: number; commands: number }> {
    const { rate, ms } = options;
    const before = commands;
    const sent = await paced(rate, ms, () => log!.append(convId(next++ % conversations), tokenEntry()));
    return { sent, ...(await latencies.take(sent)), commands: commands - before };
  },
};

/** What this program can be asked. */
export type TokenLoad = typeof methods;

serve(methods, () => log?.stop());
