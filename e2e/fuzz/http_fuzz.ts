import { request } from "node:http";
import type { Tokens } from "./tokens.ts";
import type { Values } from "./values.ts";

export interface FuzzedRoute {
  readonly method: string;
  readonly path: string;
  readonly open: boolean;
}

export interface HttpAnswer {
  readonly status: number;
  readonly text: string;
}

/** A request that a server may not answer like this. */
export interface Finding {
  readonly what: string;
  readonly input: string;
  /** Of a 5xx. */
  readonly status?: number;
}

const event = { event_id: "e1", type: "run.step", data: { name: "a step" } };
/** A valid body for the routes that take one; mutations begin there. */
const BODIES: Readonly<Record<string, unknown>> = {
  "/chat": { conv_id: "c1", message: "Hello", policy: "queue", idempotency_key: "k" },
  "/chat/:conv_id/tools/:call_id": { approve: true, reason: "fine" },
  "/chat/:conv_id/branch": { message_id: "m1" },
  "/chat/:conv_id/events": { events: [{ text_delta: { text: "Hello" } }, { status: { text: "Looking" } }] },
  "/chat/:conv_id/participants/:subject": { role: "member" },
  "/mcp": { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "list_approvals", arguments: {} } },
  "/ops/v1/erase": { subject: "ada", dry_run: true },
  "/ai/chat": { id: "c1", messages: [{ id: "m1", role: "user", parts: [{ type: "text", text: "Hello" }] }] },
  "/ag-ui": { threadId: "c1", runId: "r1", messages: [{ id: "m1", role: "user", content: "Hello" }] },
  "/blackboard/v1/artifacts": { type: "Draft", payload: { text: "x" }, correlation_id: "c", tags: ["t"] },
  "/blackboard/v1/agents/:agent/claim": { worker: "w", max: 1, wait_ms: 0 },
  "/blackboard/v1/claims/:claim_id/settle": { outputs: [{ type: "Edited", payload: {} }] },
  "/blackboard/v1/approvals/:id": { approved: true, reason: "fine" },
  "/blackboard/v1/dead-letters/:agent/replay": { ids: ["x"], correlation_id: "c" },
  "/blackboard/v1/dead-letters/:agent/:id/replay": { payload: {} },
  "/api/sync/token": { sub: "ada", org_id: "acme", scopes: ["chat"], ttl_s: 60 },
  "/api/sync/revoke": { jti: "nobody's" },
};
const PARAMS = [
  "limit",
  "after",
  "before",
  "topic",
  "search",
  "type",
  "correlation_id",
  "action",
  "subject",
  "policy",
  "offset",
  "live",
  "leaf",
  "status",
  "q",
  "order",
  "conv_id",
  "name",
  "org",
];
const NAMES = ["run-1", "c1", "writer", "editor", "runtime.run_summaries", "run:run-1", "failing"];

/** Sends one random request; resolves with what is wrong with its answer, if something is. */
export async function fuzzHttp(
  url: string,
  routes: readonly FuzzedRoute[],
  values: Values,
  tokens: Tokens,
): Promise<Finding | undefined> {
  const route = values.pick(routes);
  const name = () =>
    encodeURIComponent(values.chance(0.5) ? values.pick(NAMES) : values.text().toWellFormed());
  const path = route.path.replace(/:\w+|\*/g, name);
  const query = new URLSearchParams();
  while (values.chance(0.4)) query.append(values.pick(PARAMS), values.chance(0.3) ? "5" : values.text());
  const bad = values.chance(0.15);
  const token = values.chance(0.05) ? "" : bad ? tokens.bad() : tokens.good();
  const template = BODIES[route.path] ?? (route.path.endsWith("/events") ? { events: [event] } : {});
  const mutated = JSON.stringify(values.mutated(template)) ?? "";
  const body =
    route.method === "GET" || route.method === "HEAD" || values.chance(0.1)
      ? undefined
      : values.chance(0.1)
        ? values.bytes(2_000)
        : Buffer.from(values.chance(0.9) ? mutated : values.damaged(mutated));
  const headers: Record<string, string> = {
    ...(token && { authorization: `Bearer ${token}` }),
    ...(body && { "content-type": values.chance(0.9) ? "application/json" : "text/plain" }),
    ...(values.chance(0.1) && { "idempotency-key": values.text().replace(/[^\x20-\x7e]/g, "") }),
    ...(values.chance(0.05) && { range: `bytes=${values.below(9)}-${values.below(99)}` }),
    ...(values.chance(0.1) && { traceparent: values.text().replace(/[^\x20-\x7e]/g, "") }),
  };
  const address = `${path}${query.size > 0 ? `?${query}` : ""}`;
  const input = `${route.method} ${address} ${JSON.stringify(headers)} ${body?.toString() ?? ""}`.slice(
    0,
    2_000,
  );
  const answer = await send(url, route.method, address, headers, body).catch((error: Error) => error);
  // A connection that the server closes in the middle is an answer to a request that cannot be read.
  if (answer instanceof Error) return undefined;
  values.remember(answer.text);
  if (answer.status >= 500)
    return { what: `${answer.status}: ${answer.text.slice(0, 500)}`, input, status: answer.status };
  const refused = answer.status === 401 || (answer.status >= 400 && answer.status < 500);
  if (bad && token !== "" && !route.open && !refused)
    return { what: `a bad token got ${answer.status}`, input };
  if (/\n\s+at |node_modules|postgres(ql)?:\/\/|ECONN/.test(answer.text))
    return { what: `an exception is shown: ${answer.text}`, input };
  return undefined;
}

function send(
  url: string,
  method: string,
  path: string,
  headers: Record<string, string>,
  body: Buffer | undefined,
): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const asked = request({
      hostname,
      port,
      method,
      path,
      headers: { ...headers, connection: "close" },
      timeout: 30_000,
    });
    asked.once("error", reject);
    asked.once("timeout", () => asked.destroy(new Error("no answer within 30 s")));
    asked.once("response", (response) => {
      let text = "";
      const done = () => resolve({ status: response.statusCode!, text });
      // Streams are left once they have begun.
      if (response.headers["content-type"]?.startsWith("text/event-stream")) {
        response.destroy();
        return done();
      }
      response.setEncoding("utf8").on("data", (chunk: string) => {
        if (text.length < 100_000) text += chunk;
      });
      response.once("end", done);
      response.once("error", reject);
    });
    asked.end(body);
  });
}
