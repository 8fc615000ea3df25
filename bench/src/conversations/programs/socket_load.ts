import { pooled } from "../../kit/pooled.ts";
import { serve } from "../../kit/program.ts";
import { convId } from "../bench.ts";
import { conversationClient } from "../clients.ts";

let failure: Error | undefined;
const follower = {
  event() {},
  lost(reason: Error) {
    failure ??= reason;
  },
};

const methods = {
  /** A socket to a conversation of its own for each token. */
  async apart({ port, tokens }: { port: number; tokens: readonly string[] }): Promise<void> {
    await pooled(tokens.length, 50, (n) => conversationClient(port, tokens[n]!, convId(n), follower));
  },

  /** So many sockets to one conversation. */
  async together(options: { port: number; token: string; sockets: number }): Promise<void> {
    const { port, token, sockets } = options;
    await pooled(sockets, 50, () => conversationClient(port, token, convId(0), follower));
  },

  /** An error if a socket was closed. */
  async check(): Promise<void> {
    if (failure) throw failure;
  },
};

/** What this program can be asked. */
export type SocketLoad = typeof methods;

serve(methods);
