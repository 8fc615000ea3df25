import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { json as readJson } from "node:stream/consumers";
import type { ModelAnswer, ModelRefusal, ProviderWire } from "./answer.ts";
import { anthropicMessages } from "./anthropic_messages.ts";
import { openAiChat } from "./openai_chat.ts";
import { openAiResponses } from "./openai_responses.ts";

/** A request for an answer, as the provider received it. */
export interface ModelRequest {
  readonly provider: "openai" | "anthropic";
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Readonly<Record<string, unknown>>;
}

/** Chooses the model's answer. */
export type Respond = (request: ModelRequest, count: number) => ModelAnswer | ModelRefusal;

/** A stand-in for model providers that streams their wire formats. */
export interface ModelProvider extends AsyncDisposable {
  /** For `baseURL` of a provider of the AI SDK. */
  readonly url: string;
  readonly requests: readonly ModelRequest[];
}

const WIRES: Readonly<Record<string, { provider: ModelRequest["provider"]; wire: ProviderWire }>> = {
  "/v1/responses": { provider: "openai", wire: openAiResponses },
  "/v1/chat/completions": { provider: "openai", wire: openAiChat },
  "/v1/messages": { provider: "anthropic", wire: anthropicMessages },
};

/** Starts a provider that answers each request with the function's answer. */
export async function startModelProvider(respond: Respond): Promise<ModelProvider> {
  const requests: ModelRequest[] = [];
  const server = createServer(async (request, response) => {
    const found = WIRES[request.url ?? ""];
    if (!found) return response.writeHead(404).end();
    const body = (await readJson(request)) as ModelRequest["body"];
    const asked: ModelRequest = { provider: found.provider, headers: request.headers, body };
    requests.push(asked);
    const answer = respond(asked, requests.length);
    if ("error" in answer) return refuse(response, found.wire, answer);
    await stream(response, found.wire, answer, String(body.model));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/v1`,
    requests,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function refuse(response: ServerResponse, wire: ProviderWire, refusal: ModelRefusal): void {
  const { status, body } = wire.refusal(refusal);
  const after = refusal.retryAfterMs;
  response.writeHead(status, {
    "content-type": "application/json",
    ...(after !== undefined && { "retry-after": String(after / 1_000) }),
  });
  response.end(JSON.stringify(body));
}

async function stream(
  response: ServerResponse,
  wire: ProviderWire,
  answer: ModelAnswer,
  model: string,
): Promise<void> {
  response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
  for (const { event, data } of wire.events(answer, model)) {
    const text = typeof data === "string" ? data : JSON.stringify(data);
    response.write(`${event ? `event: ${event}\n` : ""}data: ${text}\n\n`);
    // Each event in a packet of its own, as from a real model.
    await new Promise((resolve) => setImmediate(resolve));
  }
  if (answer.failure !== "connection_reset") return void response.end();
  // The client has read everything before it, as far as this side can know.
  response.socket?.destroySoon();
}
