import { once } from "node:events";
import { type IncomingMessage, request } from "node:http";
import { pooled } from "../../kit/pooled.ts";
import { serve } from "../../kit/program.ts";
import { RawSocket } from "../../kit/raw_socket.ts";
import { type Answer, PIECE, TOKEN } from "../answer.ts";
import { isEvent, sequenceOf } from "../clients.ts";

/** Milliseconds from the beginning of the connection, and what came over it. */
export interface Resumed {
  readonly first: number;
  readonly complete: number;
  readonly bytes: number;
}

/** Which socket, and what it asks for besides, such as `&after=…`. */
export interface SocketRequest {
  readonly port: number;
  readonly token: string;
  readonly conv: string;
  readonly query: string;
}

/** Opens a socket and reads until `done` says so; the first byte is the first one after the hello. */
async function readSocket(
  { port, token, conv, query }: SocketRequest,
  done: (frame: Buffer) => boolean,
): Promise<Resumed> {
  const over = Promise.withResolvers<Resumed>();
  let hello = false;
  let first: number | undefined;
  let bytes = 0;
  const began = performance.now();
  const socket = new RawSocket(port, `/ws?conv_id=${conv}&token=${token}${query}`, {
    open() {},
    closed: (reason) => over.reject(new Error(reason)),
    begun() {
      if (hello) first ??= performance.now() - began;
    },
    frame(data) {
      if (!hello) {
        hello = true;
        return;
      }
      first ??= performance.now() - began;
      bytes += data.length;
      try {
        if (done(data)) over.resolve({ first, complete: performance.now() - began, bytes });
      } catch (error) {
        over.reject(error as Error);
      }
    },
  });
  return await over.promise.finally(() => socket.close());
}

/** Sends a request on a connection of its own; resolves with the head of the answer. */
async function send(port: number, method: string, path: string, body = ""): Promise<IncomingMessage> {
  const headers = { "content-type": "text/plain", "content-length": Buffer.byteLength(body) };
  const sent = request({ port, host: "127.0.0.1", method, path, headers, agent: false });
  sent.end(body);
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  if (response.statusCode! >= 300) throw new Error(`${method} ${path} was answered ${response.statusCode}.`);
  return response;
}

const methods = {
  /** Khala: asks for an answer; resolves with the cursor before it. */
  async chat(options: { port: number; token: string; conv: string; answer: Answer }): Promise<string> {
    const { port, token, conv, answer } = options;
    const response = await fetch(`http://127.0.0.1:${port}/chat`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
      body: JSON.stringify({ conv_id: conv, message: JSON.stringify(answer) }),
    });
    if (response.status !== 202) throw new Error(`POST /chat: ${await response.text()}`);
    return ((await response.json()) as { cursor: string }).cursor;
  },

  /** Khala: reads events until their text is so long; resolves with the sequence of the last. */
  async follow({ chars, ...socket }: SocketRequest & { chars: number }): Promise<number> {
    let seq = 0;
    let length = 0;
    await readSocket(socket, (frame) => {
      const { type, event, messages } = JSON.parse(frame.toString());
      if (type === "event") seq = sequenceOf(frame);
      length += event?.text_delta?.text.length ?? 0;
      // A client that joins in the middle gets a snapshot.
      if (messages) length = lengthOf(messages);
      return length >= chars;
    });
    return seq;
  },

  /** Khala: every event up to a sequence. */
  async events({ seq, ...socket }: SocketRequest & { seq: number }): Promise<Resumed> {
    return await readSocket(socket, (frame) => isEvent(frame) && sequenceOf(frame) === seq);
  },

  /** Khala: the snapshot, which has to hold the whole text. */
  async snapshot({ chars, ...socket }: SocketRequest & { chars: number }): Promise<Resumed> {
    let snapshot: Buffer = Buffer.alloc(0);
    const resumed = await readSocket(socket, (frame) => {
      snapshot = frame;
      return true;
    });
    const { messages } = JSON.parse(snapshot.toString());
    if (lengthOf(messages) !== chars) throw new Error("The snapshot is not complete.");
    return resumed;
  },

  /** HTTP: asks for an answer, and leaves after its first byte. */
  async begin({ port, id, answer }: { port: number; id: string; answer: Answer }): Promise<void> {
    const query = encodeURIComponent(JSON.stringify(answer));
    const response = await send(port, "POST", `/${id}?answer=${query}`);
    await once(response, "data");
    response.destroy();
  },

  /** HTTP: reads a stream that goes on until so many characters have come. */
  async stream({ port, id, chars }: { port: number; id: string; chars: number }): Promise<Resumed> {
    const began = performance.now();
    const response = await send(port, "GET", `/${id}`);
    let first: number | undefined;
    let bytes = 0;
    for await (const chunk of response) {
      first ??= performance.now() - began;
      bytes += (chunk as Buffer).length;
      if (bytes >= chars) break;
    }
    if (bytes !== chars) throw new Error(`${bytes} of ${chars} characters came.`);
    return { first: first!, complete: performance.now() - began, bytes };
  },

  /** durable-streams: makes a stream. */
  async create({ port, id }: { port: number; id: string }): Promise<void> {
    (await send(port, "PUT", `/${id}`)).resume();
  },

  /** durable-streams: writes so many pieces, all the same, so that their order does not matter. */
  async write({ port, id, pieces }: { port: number; id: string; pieces: number }): Promise<void> {
    const piece = TOKEN.repeat(PIECE / TOKEN.length);
    await pooled(pieces, 16, async () => {
      (await send(port, "POST", `/${id}`, piece)).resume();
    });
  },

  /** durable-streams: reads from the beginning until the answer says that this was all. */
  async catchUp({ port, id, chars }: { port: number; id: string; chars: number }): Promise<Resumed> {
    const began = performance.now();
    let first: number | undefined;
    let bytes = 0;
    for (let offset = "-1"; ; ) {
      const response = await send(port, "GET", `/${id}?offset=${offset}`);
      for await (const chunk of response) {
        first ??= performance.now() - began;
        bytes += (chunk as Buffer).length;
      }
      if (response.headers["stream-up-to-date"] === "true") break;
      offset = String(response.headers["stream-next-offset"]);
    }
    if (bytes !== chars) throw new Error(`${bytes} of ${chars} characters came.`);
    return { first: first!, complete: performance.now() - began, bytes };
  },
};

function lengthOf(messages: readonly { role: string; parts?: { text?: string }[] }[]): number {
  const answers = messages.filter(({ role }) => role === "assistant").flatMap(({ parts = [] }) => parts);
  return answers.reduce((sum, { text = "" }) => sum + text.length, 0);
}

/** What this program can be asked. */
export type ResumeLoad = typeof methods;

serve(methods);
