import { RawSocket } from "../kit/raw_socket.ts";

/** The servers that are compared. */
export type Kind = "khala" | "centrifugo" | "socketio" | "ws";

/** A connected client. */
export interface Client {
  /** Keeps the connection alive where the protocol wants the client to. */
  beat(): void;
  close(): void;
}

/** Whom a client tells. */
export interface Follower {
  /** A frame came: how many updates it brought, and its bytes. */
  updates(count: number, frame: Buffer): void;
  /** The connection is gone, and nobody here closed it. */
  lost(reason: Error): void;
}

/** A position of Khala's, as it goes over the wire. */
export interface WireCursor {
  readonly epoch: string;
  readonly watermark: string;
}

export interface KhalaClient extends Client {
  /** Where the subscription began. */
  readonly cursor: WireCursor | undefined;
  /** Subscribes, from a cursor or from now; resolves when the reply, and after a cursor the replay, has come. */
  subscribe(topic: string, after?: WireCursor): Promise<void>;
}

const TEXT_FRAME = '[null,null,"sync:v1","frame",{"'.length;
const UPDATE_BATCH = "u".charCodeAt(0);
const NEWLINE = 10;
const ZERO = "0".charCodeAt(0);

/** Phoenix Channels V2, JSON: connects and joins. Every update of the topic must be visible to it, to be counted. */
export function khalaClient(port: number, token: string, follower: Follower): Promise<KhalaClient> {
  const { promise, resolve, reject } = Promise.withResolvers<KhalaClient>();
  let subscribed: PromiseWithResolvers<void> | undefined;
  let cursor: WireCursor | undefined;
  let position = 0;
  let resumed: WireCursor | undefined;
  let replaying = false;
  const client: KhalaClient = {
    get cursor() {
      return cursor;
    },
    subscribe(topic, after) {
      subscribed = Promise.withResolvers();
      resumed = after;
      replaying = after !== undefined;
      const payload = { topics: [topic], ...(after && { resume_after: { [topic]: after } }) };
      socket.send(JSON.stringify(["1", "2", "sync:v1", "subscribe", payload]));
      return subscribed.promise;
    },
    beat: () => socket.send('[null,"3","phoenix","heartbeat",{}]'),
    close: () => socket.close(),
  };
  const gone = (reason: Error) => {
    reject(reason);
    subscribed?.reject(reason);
    follower.lost(reason);
  };
  const socket = new RawSocket(port, `/socket/websocket?vsn=2.0.0&token=${token}`, {
    open: () => socket.send('["1","1","sync:v1","phx_join",{}]'),
    closed: (reason) => gone(new Error(reason)),
    frame(data) {
      if (data[TEXT_FRAME] === UPDATE_BATCH) {
        const watermark = lastNumber(data);
        follower.updates(watermark - position, data);
        position = watermark;
        if (replaying && data.includes('"replay_complete":true', -40)) {
          replaying = false;
          subscribed?.resolve();
        }
        return;
      }
      const [, ref, , event, payload] = JSON.parse(data.toString());
      if (event !== "phx_reply" || ref === "3") return;
      if (payload.status !== "ok") return gone(new Error(`refused: ${JSON.stringify(payload)}`));
      if (ref === "1") return resolve(client);
      cursor = Object.values(payload.response.current_watermarks)[0] as WireCursor;
      position = Number((resumed ?? cursor).watermark);
      if (!replaying) subscribed?.resolve();
    },
  });
  return promise;
}

/** The last digits in a frame: the watermark that it ends at. */
function lastNumber(data: Buffer): number {
  let end = data.length - 1;
  while (!isDigit(data[end]!)) end--;
  let value = 0;
  for (let at = end, unit = 1; isDigit(data[at]!); at--, unit *= 10) value += (data[at]! - ZERO) * unit;
  return value;
}

const isDigit = (byte: number) => byte >= ZERO && byte <= ZERO + 9;

/** Centrifugo's JSON protocol: connects, and subscribes when a channel is given. */
export function centrifugoClient(
  port: number,
  channel: string | undefined,
  follower: Follower,
): Promise<Client> {
  const { promise, resolve, reject } = Promise.withResolvers<Client>();
  let live = false;
  const client = { beat() {}, close: () => socket.close() };
  const socket = new RawSocket(port, "/connection/websocket", {
    open: () => socket.send('{"id":1,"connect":{}}'),
    closed(reason) {
      reject(new Error(reason));
      follower.lost(new Error(reason));
    },
    frame(data) {
      if (live) {
        const { messages, pings } = countLines(data);
        // Pings are empty objects, and are answered with the same.
        if (pings > 0) socket.send("{}");
        if (messages > 0) follower.updates(messages, data);
        return;
      }
      for (const line of data.toString().split("\n")) {
        const { id, error } = line ? JSON.parse(line) : {};
        if (error) reject(new Error(`refused: ${line}`));
        else if (id === 1 && channel) socket.send(JSON.stringify({ id: 2, subscribe: { channel } }));
        else if (id) {
          live = true;
          resolve(client);
        }
      }
    },
  });
  return promise;
}

/** A frame holds messages separated by newlines; a ping may be among them. */
function countLines(data: Buffer): { messages: number; pings: number } {
  let messages = 0;
  let pings = 0;
  for (let start = 0; start < data.length; ) {
    const newline = data.indexOf(NEWLINE, start);
    const end = newline < 0 ? data.length : newline;
    if (end - start > 2) messages++;
    else pings++;
    start = end + 1;
  }
  return { messages, pings };
}

/** Socket.IO 4 over its WebSocket transport. */
export function socketioClient(port: number, follower: Follower): Promise<Client> {
  const { promise, resolve, reject } = Promise.withResolvers<Client>();
  const client = { beat() {}, close: () => socket.close() };
  const socket = new RawSocket(port, "/socket.io/?EIO=4&transport=websocket", {
    open() {},
    closed(reason) {
      reject(new Error(reason));
      follower.lost(new Error(reason));
    },
    frame(data) {
      switch (data.toString("latin1", 0, 2)) {
        case "0{":
          return socket.send("40");
        case "40":
          return resolve(client);
        case "2":
          return socket.send("3");
        case "42":
          return follower.updates(1, data);
        default:
          return reject(new Error(`unexpected: ${data.toString("utf8", 0, 200)}`));
      }
    },
  });
  return promise;
}

export interface BareClient extends Client {
  /** From now on frames bring so many updates each, in turn. */
  expect(sizes: readonly number[]): void;
}

/** A WebSocket without a protocol: it is told how many updates each frame brings. */
export function bareClient(port: number, follower: Follower): Promise<BareClient> {
  const { promise, resolve, reject } = Promise.withResolvers<BareClient>();
  let sizes: readonly number[] = [1];
  let next = 0;
  const client: BareClient = {
    expect(ready) {
      sizes = ready;
      next = 0;
    },
    beat() {},
    close: () => socket.close(),
  };
  const socket = new RawSocket(port, "/", {
    open: () => resolve(client),
    closed(reason) {
      reject(new Error(reason));
      follower.lost(new Error(reason));
    },
    frame: (data) => follower.updates(sizes[next++ % sizes.length]!, data),
  });
  return promise;
}

/** Keeps many connections alive until the program ends. */
export function keepAlive(clients: () => readonly Client[]): void {
  setInterval(() => {
    for (const client of clients()) client.beat();
  }, 30_000).unref();
}
