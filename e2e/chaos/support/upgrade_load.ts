import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../../../packages/server/src/kit/ids.ts";

interface LoadOptions {
  readonly urls: () => readonly string[];
  readonly token: () => Promise<string>;
  readonly random: Random;
}

/** Work is spread over the whole upgrade, and does not fill the machine. */
const PAUSE_MS = 200;
const CLAIM_WAIT_MS = 300;
const COUNT = 15;
/** The answer of programs/upgraded.ts to `Count to 15`. */
export const ANSWER = Array.from({ length: COUNT }, (_, i) => `${i + 1} `).join("");

/**
 * Chats, drafts and a worker over HTTP, one request after the other in each. Only a 503 that says when to come back is repeated;
 * everything else that is not as it should be is a failure.
 */
export class UpgradeLoad {
  readonly #options: LoadOptions;
  readonly conversations: string[] = [];
  readonly drafts: string[] = [];
  readonly failures: string[] = [];
  /** Requests that were answered with 503 and repeated. */
  repeated = 0;
  #stopping = false;
  #running: Promise<unknown> = Promise.resolve();

  constructor(options: LoadOptions) {
    this.#options = options;
  }

  start(): void {
    this.#stopping = false;
    this.#running = Promise.all(
      [this.#chat(), this.#publish(), this.#work()].map((loop) => loop.catch(this.#fail)),
    );
  }

  /** Resolves when every request under way is answered. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await this.#running;
  }

  readonly #fail = (error: Error) => void this.failures.push(error.message);

  async #chat(): Promise<void> {
    while (!this.#stopping) {
      const conv_id = randomUUID();
      await this.post("/chat", { conv_id, message: `Count to ${COUNT}`, idempotency_key: randomUUID() });
      this.conversations.push(conv_id);
      await delay(PAUSE_MS);
    }
  }

  async #publish(): Promise<void> {
    while (!this.#stopping) {
      const id = randomUUID();
      await this.post("/blackboard/v1/artifacts", { id, type: "Draft", payload: { text: id } });
      this.drafts.push(id);
      await delay(PAUSE_MS);
    }
  }

  /** Makes a `Page` of every `Review`. */
  async #work(): Promise<void> {
    while (!this.#stopping) {
      const asked = { worker: "upgrade", max: 20, wait_ms: CLAIM_WAIT_MS };
      const { claims } = await this.post<{
        claims: { claim_id: string; task: { artifacts: { payload: { of: string } }[] } }[];
      }>("/blackboard/v1/agents/editor/claim", asked);
      for (const { claim_id, task } of claims) {
        const outputs = [{ type: "Page", payload: task.artifacts[0]!.payload }];
        await this.post(`/blackboard/v1/claims/${claim_id}/settle`, { outputs });
      }
    }
  }

  /** Sends a request to any server until it is answered with other than an announced 503. */
  async post<T>(path: string, body: object): Promise<T> {
    const { urls, token, random } = this.#options;
    for (;;) {
      const all = urls();
      const response = await fetch(`${all[Math.floor(random() * all.length)]}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${await token()}` },
        body: JSON.stringify(body),
        signal: AbortSignal.timeout(30_000),
      });
      const answer = await response.text();
      if (response.ok) return JSON.parse(answer) as T;
      const wait = response.status === 503 ? JSON.parse(answer)?.error?.retry_after_ms : undefined;
      if (wait === undefined) throw new Error(`POST ${path}: ${response.status} ${answer}`);
      this.repeated++;
      await delay(wait);
    }
  }
}
