import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { RawClient } from "@khala/test-support/clients/clients";
import { RUNS } from "@khala/test-support/servers/servers";
import { describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { make, roles, server, tokens, withServer, worthlessTokens } from "./world.ts";

withServer();

/** The first frame, or the code of the error that refused the handshake. */
type Opened = { readonly socket: WebSocket; readonly first: Promise<Frame> } | { readonly refused: string };
type Frame = Readonly<Record<string, unknown>>;

/** Connects to a path with its parameters. */
async function open(path: string, token: string): Promise<Opened> {
  const url = `${server.url.replace("http", "ws")}${path}${path.includes("?") ? "&" : "?"}token=${token}`;
  const socket = new WebSocket(url);
  const first = once(socket, "message").then(([data]) => JSON.parse(String(data)) as Frame);
  // Nobody waits for it where the handshake is refused.
  first.catch(() => {});
  const answered = once(socket, "unexpected-response") as Promise<[unknown, IncomingMessage]>;
  const refused = await Promise.race([once(socket, "open").then(() => undefined), answered]);
  if (!refused) return { socket, first };
  answered.catch(() => {});
  return { refused: JSON.parse(await text(refused[1])).error.code };
}

/** Sends a frame and resolves with the next one. */
async function next(socket: WebSocket, frame: object): Promise<Frame> {
  const answer = once(socket, "message");
  socket.send(JSON.stringify(frame));
  return JSON.parse(String((await answer)[0]));
}

/** The code of an answer; the AI SDK's frames have only the text. */
function codeOf({ type, code, errorText }: Frame): string {
  if (type === "error" && typeof code === "string") return code;
  if (type !== "error") return String(type);
  if (/you may not see it/.test(String(errorText))) return "not_found";
  return /participant|viewer/.test(String(errorText)) ? "missing_role" : String(errorText);
}

interface SocketRow {
  readonly make: () => Promise<string>;
  readonly path: (conv: string) => string;
  /** What is sent once the socket is open, and greeted where it is. */
  readonly send?: (conv: string) => object;
  readonly cells: string;
}

const aiFrame = (type: string, id: string) => ({
  type,
  requestId: "r",
  id,
  ...(type === "send" && {
    messages: [{ id: "m", role: "user", parts: [{ type: "text", text: "Again" }] }],
  }),
});

/** For each socket without channels, by its path: what the roles get. */
//                                                    owner other foreign bare operator service platform member viewer
const SOCKETS: Readonly<Record<string, SocketRow>> = {
  "/ws": {
    make: make.conversation,
    path: (conv) => `/ws?conv_id=${conv}`,
    cells: "hello not_found hello missing_scope missing_scope hello missing_scope hello hello",
  },
  "/ws typing": {
    make: make.conversation,
    path: (conv) => `/ws?conv_id=${conv}&device=laptop`,
    // It has no answer unless it is refused: the pong is that of a ping.
    send: () => ({ type: "typing", typing: true }),
    cells: "pong not_found pong missing_scope missing_scope pong missing_scope pong pong",
  },
  "/ai/ws send": {
    make: make.conversation,
    path: () => "/ai/ws?policy=queue",
    send: (conv) => aiFrame("send", conv),
    cells: "start not_found start missing_scope missing_scope start missing_scope start missing_role",
  },
  // Without a run there is nothing to resume, whether the conversation is there or not.
  "/ai/ws resume": {
    make: make.liveRun,
    path: () => "/ai/ws",
    send: (conv) => aiFrame("resume", conv),
    cells: "start no-active no-active missing_scope missing_scope start missing_scope start start",
  },
};

/** The socket of the channels below. */
const PHOENIX = "/socket/websocket";

test("every socket has a row", () => {
  const paths = server.khala.gateway.endpoints.map(({ path }) => path);
  const rows = Object.keys(SOCKETS).map((name) => name.split(" ")[0]);
  expect(paths.sort()).toEqual([...new Set([...rows, PHOENIX])].sort());
});

describe.each(Object.keys(SOCKETS))("%s", (name) => {
  const row = SOCKETS[name]!;

  test.each(roles.map((role, i) => [role, row.cells.split(" ")[i]!] as const))(
    "%s: %s",
    async (role, expected) => {
      const conv = await row.make();
      const opened = await open(row.path(conv), tokens[role]);
      if ("refused" in opened) return expect(opened.refused).toBe(expected);
      const { socket, first } = opened;
      try {
        const isGreeted = row.path(conv).startsWith("/ws");
        const greeting = isGreeted ? codeOf(await first) : "hello";
        if (!row.send || greeting !== "hello") return expect(greeting).toBe(expected);
        const answer = next(socket, row.send(conv));
        if (isGreeted) socket.send(JSON.stringify({ type: "ping" }));
        expect(codeOf(await answer)).toBe(expected);
      } finally {
        socket.terminate();
      }
    },
  );
});

test.each(["/ws?conv_id=nothing", "/ai/ws", `${PHOENIX}?vsn=2.0.0`])(
  "%s refuses no token, an expired one and a revoked one",
  async (path) => {
    const codes = [];
    for (const token of await worthlessTokens()) codes.push(await open(path, token));
    expect(codes).toEqual([
      { refused: "missing_authorization" },
      { refused: expect.stringMatching(/^(token_expired|invalid_token)$/) },
      { refused: "token_revoked" },
    ]);
  },
);

/** For each event of each channel: what the roles get. */
const CHANNELS: Record<
  string,
  { payload: () => Promise<object> | object; topic?: () => Promise<string>; cells: string }
> = {
  "sync:v1 phx_join": { payload: () => ({}), cells: "ok ok ok ok ok ok ok ok ok" },
  "sync:v1 subscribe": {
    payload: () => ({ topics: [RUNS] }),
    cells: "ok ok ok forbidden_topic forbidden_topic forbidden_topic forbidden_topic ok ok",
  },
  "sync:v1 unsubscribe": { payload: () => ({ topics: [RUNS] }), cells: "ok ok ok ok ok ok ok ok ok" },
  "sync:v1 heartbeat": { payload: () => ({}), cells: "ok ok ok ok ok ok ok ok ok" },
  "conversation: phx_join": {
    topic: make.conversation,
    payload: () => ({}),
    cells: "ok not_found ok missing_scope missing_scope ok missing_scope ok ok",
  },
  "conversation: chat": {
    topic: make.conversation,
    payload: () => ({ message: "Again", policy: "queue" }),
    cells: "ok - ok - - ok - ok missing_role",
  },
  "conversation: stop": {
    topic: make.conversation,
    payload: () => ({}),
    cells: "ok - ok - - ok - ok missing_role",
  },
  "conversation: state": { topic: make.conversation, payload: () => ({}), cells: "ok - ok - - ok - ok ok" },
  "conversation: typing": {
    topic: make.conversation,
    payload: () => ({ typing: true }),
    cells: "ok - ok - - ok - ok ok",
  },
  "ops:v1 phx_join": {
    payload: () => ({}),
    cells: "missing_scope missing_scope ok missing_scope ok missing_scope ok missing_scope missing_scope",
  },
};

test("every event of every channel has a row", () => {
  const events = server.khala.gateway.channels.flatMap(({ topic, events }) =>
    ["phx_join", ...Object.keys(events)].map((event) => `${topic} ${event}`),
  );
  expect(Object.keys(CHANNELS).sort()).toEqual(events.sort());
});

describe.each(Object.keys(CHANNELS))("%s", (name) => {
  const { payload, topic, cells } = CHANNELS[name]!;
  const [channel, event] = name.split(" ") as [string, string];

  test.each(roles.map((role, i) => [role, cells.split(" ")[i]!] as const))(
    "%s: %s",
    async (role, expected) => {
      const joined = topic ? `${channel}${await topic()}` : channel;
      await using raw = await RawClient.connect(server.socketUrl, { token: tokens[role] });
      const reply = async (pushed: string, body: object) => {
        const { status, response } = (await raw.push(joined, pushed, body)) as {
          status: string;
          response: { error?: { code: string } };
        };
        return status === "ok" ? "ok" : response.error?.code;
      };
      if (event !== "phx_join") {
        const join = await reply("phx_join", event === "typing" ? { device: "laptop" } : {});
        // A role that may not join has nothing to push to.
        if (expected === "-") return expect(join).not.toBe("ok");
      }
      expect(await reply(event, await payload())).toBe(expected);
    },
  );
});
