import { DurableStreamTestServer } from "@durable-streams/server";
import { serve } from "../../kit/program.ts";

// It tells of every append that took long, which would end up among the results.
console.info = () => {};

let server: DurableStreamTestServer | undefined;

const methods = {
  /** As its README starts it: in memory, or in files of a folder. */
  async open({ folder }: { folder?: string }): Promise<{ port: number }> {
    server = new DurableStreamTestServer({ port: 0, host: "127.0.0.1", ...(folder && { dataDir: folder }) });
    await server.start();
    return { port: Number(new URL(server.url).port) };
  },
};

/** What this program can be asked. */
export type DurableStreamsServer = typeof methods;

serve(methods, () => server?.stop());
