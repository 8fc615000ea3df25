import { type Khala, runSummaries } from "@khala/server";
import { serve } from "../../kit/program.ts";
import { onEachByte } from "./control.ts";
import { publisherOf } from "./khala_publisher.ts";
import { openKhala } from "./library.ts";

let khala: Khala | undefined;

const methods = {
  async open({ url }: { url: string }): Promise<{ port: number }> {
    khala = await openKhala(url);
    return { port: Number(new URL(khala.url).port) };
  },

  /** Writes the next document for each byte that comes here: the server that takes a write also sends it on. */
  async broadcast(): Promise<{ control: number }> {
    const publish = publisherOf(khala!);
    let next = 0;
    const { port } = await onEachByte(() => void publish(next++));
    return { control: port };
  },

  /** Reads of the journal so far, as the gateway counts them: of everybody's rows, and for viewers who are behind. */
  async reads(): Promise<number> {
    const text = await (await fetch(`${khala!.url}/metrics`)).text();
    const lines = text.split("\n").filter((line) => line.startsWith("khala_sync_journal_reads_total"));
    const own = lines.filter((line) => line.includes(runSummaries.topic));
    return own.reduce((sum, line) => sum + Number(line.split(" ")[1]), 0);
  },

  /** Collects what is garbage; the program must be started with --expose-gc. */
  async collect(): Promise<void> {
    for (let i = 0; i < 3; i++)
      await (globalThis.gc?.({ execution: "async", type: "major" }) as Promise<void>);
  },
};

/** What this program can be asked. */
export type GatewayProgram = typeof methods;

serve(methods, () => khala?.stop());
