import { type Clock, sleep } from "../../kit/clock.ts";
import type { Http } from "../http.ts";

/** What a dependency of the server is doing. */
export interface DependencyState {
  readonly state: "ok" | "degraded" | "unavailable";
  /** What is wrong and what to do. */
  readonly message?: string;
  readonly [detail: string]: unknown;
}

/** Asks every dependency for its state. */
export type Health = () => Promise<Record<string, DependencyState>>;

export interface HealthRouteOptions {
  readonly clock: Clock;
  readonly health: Health;
  readonly scrape: () => Promise<string>;
}

/** Whoever asks for readiness gives up soon after. */
const ANSWER_MS = 3_000;

/** `GET /healthz`, `/readyz`, `/metrics`. */
export function healthRoutes(http: Http, { clock, health, scrape }: HealthRouteOptions): void {
  http.app.get("/healthz", async () => ({ status: "ok" }));

  http.app.get("/readyz", async (_request, reply) => {
    const answered = new AbortController();
    const late = sleep(clock, ANSWER_MS, answered.signal).then(() => silent);
    const dependencies = await Promise.race([health(), late]);
    answered.abort();
    const states = Object.values(dependencies).map(({ state }) => state);
    const status = states.includes("unavailable")
      ? "unavailable"
      : states.includes("degraded")
        ? "degraded"
        : "ok";
    // Degraded still serves: taking it out of rotation would make it worse.
    return reply.code(status === "unavailable" ? 503 : 200).send({ status, dependencies });
  });

  /** A line that is dead answers nothing, not even an error. */
  const silent: Awaited<ReturnType<Health>> = {
    database: { state: "unavailable", message: `There was no answer within ${ANSWER_MS} ms.` },
  };

  http.app.get("/metrics", async (_request, reply) => {
    return reply.type("text/plain; version=0.0.4; charset=utf-8").send(await scrape());
  });
}
