import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import { Redis } from "ioredis";
import { importPeer } from "../../../peers/import_peer.ts";
import { serve } from "../../kit/program.ts";
import { type Answer, answerTokens, Hold } from "../answer.ts";

// What is used of resumable-stream.
interface StreamContext {
  createNewResumableStream(
    id: string,
    make: () => ReadableStream<string>,
  ): Promise<ReadableStream<string> | null>;
  resumeExistingStream(id: string): Promise<ReadableStream<string> | null | undefined>;
}
interface ResumableStream {
  createResumableStreamContext(options: {
    waitUntil: null;
    publisher: Redis;
    subscriber: Redis;
  }): StreamContext;
}

const hold = new Hold();
const clients: Redis[] = [];

/** The answer as a stream that is not over until it is released. */
function answerStream(answer: Answer): ReadableStream<string> {
  const tokens = answerTokens(answer);
  return new ReadableStream({
    async pull(controller) {
      const { value, done } = await tokens.next();
      if (!done) return controller.enqueue(value);
      await hold.end();
      controller.close();
    },
  });
}

async function respond(response: ServerResponse, stream: ReadableStream<string> | null | undefined) {
  if (!stream) return response.writeHead(422).end("Stream is already done");
  response.writeHead(200, { "content-type": "text/event-stream" });
  for await (const chunk of stream) {
    if (response.destroyed) return;
    if (!response.write(chunk)) await Promise.race([once(response, "drain"), once(response, "close")]);
  }
  response.end();
}

const methods = {
  /** The routes of its README, "usage with explicit resumption", on ioredis. */
  async open({ redis }: { redis: string }): Promise<{ port: number }> {
    const [publisher, subscriber] = [new Redis(redis, { protocol: 2 }), new Redis(redis, { protocol: 2 })];
    clients.push(publisher, subscriber);
    const { createResumableStreamContext } = await importPeer<ResumableStream>("resumable-stream/ioredis");
    const context = createResumableStreamContext({ waitUntil: null, publisher, subscriber });
    const http = createServer(async (request, response) => {
      const { pathname: id, searchParams } = new URL(request.url!, "http://localhost");
      try {
        if (request.method !== "POST") return await respond(response, await context.resumeExistingStream(id));
        const answer: Answer = JSON.parse(searchParams.get("answer")!);
        await respond(response, await context.createNewResumableStream(id, () => answerStream(answer)));
      } catch (error) {
        response.destroy(error as Error);
      }
    }).listen(0, "127.0.0.1");
    await once(http, "listening");
    return { port: (http.address() as { port: number }).port };
  },

  /** Resolves when the stream was read to its last token. */
  written: () => hold.written(),

  async release(): Promise<void> {
    hold.release();
  },
};

/** What this program can be asked. */
export type ResumableStreamServer = typeof methods;

serve(methods, () => {
  for (const client of clients) client.disconnect();
});
