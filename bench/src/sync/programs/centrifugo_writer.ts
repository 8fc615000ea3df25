import { serve } from "../../kit/program.ts";
import { docKey, KEYS, runSummaryText } from "../documents.ts";
import { type CentrifugoPublish, centrifugoPublisher } from "./centrifugo_publisher.ts";
import { closedLoop, type Load } from "./closed_loop.ts";

let publish: CentrifugoPublish | undefined;
let next = 0;

const methods = {
  async open({ port }: { port: number }): Promise<void> {
    publish = centrifugoPublisher(port);
  },

  /** Publishers that each make a document, publish it to one channel, and wait for the acknowledgement. */
  documents(load: Load): Promise<number> {
    return closedLoop(load, async () => {
      const n = next++;
      const payload = runSummaryText(n % KEYS, n);
      await publish!("bench", `{"doc_key":"${docKey(n % KEYS)}","doc_version":"${n}","payload":${payload}}`);
    });
  },
};

/** What this program can be asked. */
export type CentrifugoWriter = typeof methods;

serve(methods);
