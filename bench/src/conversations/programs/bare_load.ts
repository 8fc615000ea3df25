import { pooled } from "../../kit/pooled.ts";
import { serve } from "../../kit/program.ts";
import { RawSocket } from "../../kit/raw_socket.ts";
import { convId } from "../bench.ts";
import { tokenAge, tokenEntry } from "../entries.ts";
import { Latencies, type Latency } from "../latencies.ts";
import { paced } from "../paced.ts";
import { type BareLog, openBareLog } from "./bare_log.ts";

let log: BareLog | undefined;
let conversations = 0;
let next = 0;
const latencies = new Latencies();

const methods = {
  async open({ url }: { url: string }): Promise<void> {
    log = await openBareLog(url);
  },

  /** Opens a socket to each conversation. */
  async connect({ port, sockets }: { port: number; sockets: number }): Promise<void> {
    conversations = sockets;
    await pooled(sockets, 50, async (n) => {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      new RawSocket(port, `/${convId(n)}`, {
        open: resolve,
        frame: (data) => latencies.add(tokenAge(data)),
        closed(reason) {
          const error = new Error(reason);
          reject(error);
          latencies.fail(error);
        },
      });
      await promise;
    });
  },

  /** Appends to one conversation after the other, and waits until everything has come out of the sockets. */
  async run({ rate, ms }: { rate: number; ms: number }): Promise<Latency> {
    const sent = await paced(rate, ms, () => log!.append(convId(next++ % conversations), tokenEntry()));
    return await latencies.take(sent);
  },
};

/** What this program can be asked. */
export type BareLoad = typeof methods;

serve(methods, () => log?.stop());
