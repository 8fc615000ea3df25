import { randomUUID } from "node:crypto";
import type {
  ChatRequestJson,
  ChatResponseJson,
  ConversationStateJson,
  StopResponseJson,
} from "@khala/contracts/conversation/v1";
import { eventually } from "@khala/test-support/kit/eventually";
import type { GatewayProcess } from "@khala/test-support/servers/gateways";
import { expect } from "vitest";
import { Device, type DeviceOptions } from "./conversation_chaos_device.ts";

const ANSWER_WITHIN_MS = 20_000;

/** A conversation, the devices that have it open, and what its owner does over HTTP, on any server. */
export class Conversation {
  readonly id: string;
  readonly devices: readonly Device[];
  readonly #token: string;

  /** The devices have the servers for their home in turn. */
  constructor({ convId, token, urls }: Omit<DeviceOptions, "home">, devices: number) {
    this.id = convId;
    this.#token = token;
    this.devices = Array.from({ length: devices }, (_, home) => new Device({ convId, token, urls, home }));
  }

  /** POST /chat, again under its key until it is answered with 202. */
  async send(
    server: GatewayProcess,
    message: string,
    more: ChatRequestJson = {},
  ): Promise<Required<ChatResponseJson>> {
    const body = { conv_id: this.id, message, idempotency_key: randomUUID(), ...more };
    let answer = "";
    const taken = async () => {
      const response = await this.#request(server, "/chat", body).catch((error: Error) => error);
      if (response instanceof Error) answer = response.message;
      else if (response.status === 202) return (await response.json()) as Required<ChatResponseJson>;
      else answer = `${response.status} ${await response.text()}`;
      return undefined;
    };
    return eventually(`a message is taken in ${this.id}`, taken).catch((error: Error) => {
      throw new Error(`${error.message} The last answer: ${answer}`, { cause: error });
    });
  }

  /** POST /chat/:conv_id/stop */
  async stop(server: GatewayProcess): Promise<StopResponseJson> {
    const response = await this.#request(server, `/chat/${this.id}/stop`, {});
    expect(response.status).toBe(200);
    return (await response.json()) as StopResponseJson;
  }

  /** GET /chat/:conv_id */
  async state(server: GatewayProcess): Promise<ConversationStateJson> {
    const response = await this.#request(server, `/chat/${this.id}`);
    expect(response.status).toBe(200);
    return (await response.json()) as ConversationStateJson;
  }

  #request(server: GatewayProcess, path: string, body?: object): Promise<Response> {
    return fetch(server.url + path, {
      signal: AbortSignal.timeout(ANSWER_WITHIN_MS),
      headers: { authorization: `Bearer ${this.#token}`, "content-type": "application/json" },
      ...(body && { method: "POST", body: JSON.stringify(body) }),
    });
  }
}
