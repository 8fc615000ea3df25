import { importPeer } from "../../../peers/import_peer.ts";
import { serve } from "../../kit/program.ts";

// What is used of @durable-streams/server.
interface TestServer {
  readonly url: string;
  start(): Promise<unknown>;
  stop(): Promise<void>;
}
interface DurableStreams {
  readonly DurableStreamTestServer: new (options: {
    port: number;
    host: string;
    dataDir?: string;
  }) => TestServer;
}

// It tells of every append that took long, which would end up among the results.
console.info = () => {};

let server: TestServer | undefined;

const methods = {
  /** As its README starts it: in memory, or in files of a folder. */
  async open({ folder }: { folder?: string }): Promise<{ port: number }> {
    const { DurableStreamTestServer } = await importPeer<DurableStreams>("@durable-streams/server");
    server = new DurableStreamTestServer({ port: 0, host: "127.0.0.1", ...(folder && { dataDir: folder }) });
    await server.start();
    return { port: Number(new URL(server.url).port) };
  },
};

/** What this program can be asked. */
export type DurableStreamsServer = typeof methods;

serve(methods, () => server?.stop());
