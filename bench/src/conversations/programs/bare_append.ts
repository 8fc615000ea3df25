import { serve } from "../../kit/program.ts";
import { convId } from "../bench.ts";
import { tokenEntry } from "../entries.ts";
import { paced } from "../paced.ts";
import { type BareLog, openBareLog } from "./bare_log.ts";

let log: BareLog | undefined;
let next = 0;

const methods = {
  async open({ url }: { url: string }): Promise<void> {
    log = await openBareLog(url);
  },

  /** Appends to one conversation after the other. */
  async run(options: { conversations: number; rate: number; ms: number }): Promise<number> {
    const { conversations, rate, ms } = options;
    return await paced(rate, ms, () => log!.append(convId(next++ % conversations), tokenEntry()));
  },
};

/** What this program can be asked. */
export type BareAppend = typeof methods;

serve(methods, () => log?.stop());
