import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";

/** The server under load, and a token for it. */
export interface SoakTarget {
  readonly url: string;
  token(): Promise<string>;
}

/** What the load has done so far. */
export interface SoakCounts {
  readonly done: Record<string, number>;
  readonly failures: string[];
}

/** Conversations have so many messages, then they are deleted and begun again. */
const MESSAGES = 20;
const STREAMS = 500;

/**
 * Half load on every plane, until the signal aborts: each client waits as long after a request as the request took. So the
 * server is busy half of the time, however fast the machine is.
 */
export async function halfLoad(target: SoakTarget, signal: AbortSignal): Promise<SoakCounts> {
  const counts: SoakCounts = { done: {}, failures: [] };
  const call = async (method: string, path: string, body?: object): Promise<unknown> => {
    const response = await fetch(`${target.url}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${await target.token()}`,
        ...(body && { "content-type": "application/json" }),
      },
      ...(body && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(30_000),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text.slice(0, 200)}`);
    return text === "" ? undefined : JSON.parse(text);
  };
  const repeat = async (name: string, work: (n: number) => Promise<unknown>): Promise<void> => {
    for (let n = 0; !signal.aborted; n++) {
      const began = performance.now();
      try {
        await work(n);
        counts.done[name] = (counts.done[name] ?? 0) + 1;
      } catch (error) {
        counts.failures.push(`${name}: ${(error as Error).message}`);
      }
      await delay(performance.now() - began, undefined, { signal }).catch(() => undefined);
    }
  };
  const runIds = Array.from({ length: STREAMS }, () => randomUUID());
  const append = (n: number) => {
    const first = n < STREAMS;
    const data = first ? { title: `Run ${n}` } : { name: `step ${n}`, status: "done" };
    const events = [{ event_id: randomUUID(), type: first ? "run.started" : "run.step", data }];
    return call("POST", `/runtime/v1/runs/${runIds[n % STREAMS]}/events`, { events });
  };
  const talk = (client: number) => async (n: number) => {
    const conv_id = `soak-${client}`;
    await call("POST", "/chat", { conv_id, message: `Message ${n}`, policy: "queue" });
    for (;;) {
      const { run } = (await call("GET", `/chat/${conv_id}`)) as { run?: { status: string } };
      if (run?.status !== "running" && run?.status !== "queued") break;
      await delay(20);
    }
    if (n % MESSAGES === MESSAGES - 1) await call("DELETE", `/chat/${conv_id}`);
  };
  await Promise.all([
    ...[0, 1].map(() => repeat("events", append)),
    repeat("lists", () => call("GET", "/sync/v1/list/runtime.run_summaries?limit=50")),
    ...[0, 1].map((client) => repeat("answers", talk(client))),
    ...[0, 1].map(() =>
      repeat("artifacts", (n) =>
        call("POST", "/blackboard/v1/artifacts", { type: "Topic", payload: { topic: `Otters ${n}` } }),
      ),
    ),
  ]);
  return counts;
}
