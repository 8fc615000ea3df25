import type { Clock } from "../../kit/clock.ts";
import { withTimeout } from "../../kit/timeout.ts";

/** What a dependency of the process is doing. */
export interface DependencyState {
  readonly state: "ok" | "degraded" | "unavailable";
  /** What is wrong and what to do. */
  readonly message?: string;
  readonly [detail: string]: unknown;
}

/** Asks every dependency for its state. */
export type Health = () => Promise<Record<string, DependencyState>>;

export interface HealthOptions {
  readonly clock: Clock;
  readonly health: Health;
  readonly scrape: () => Promise<string>;
}

/** What is answered, whatever carries it. */
export interface HealthAnswer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

/** Whoever asks for readiness gives up soon after. */
const ANSWER_MS = 3_000;

/** A line that is dead answers nothing, not even an error. */
const SILENT: Awaited<ReturnType<Health>> = {
  database: { state: "unavailable", message: `There was no answer within ${ANSWER_MS} ms.` },
};

/** What `/healthz`, `/readyz` and `/metrics` answer, on servers and on workers. */
export function healthAnswers({ clock, health, scrape }: HealthOptions) {
  return {
    "/healthz": async () => json(200, { status: "ok" }),

    async "/readyz"() {
      const dependencies = await withTimeout(clock, ANSWER_MS, health(), SILENT);
      const states = Object.values(dependencies).map(({ state }) => state);
      const status = states.includes("unavailable")
        ? "unavailable"
        : states.includes("degraded")
          ? "degraded"
          : "ok";
      // Degraded still serves: taking it out of rotation would make it worse.
      return json(status === "unavailable" ? 503 : 200, { status, dependencies });
    },

    "/metrics": async () => ({
      status: 200,
      type: "text/plain; version=0.0.4; charset=utf-8",
      body: await scrape(),
    }),
  } satisfies Record<string, () => Promise<HealthAnswer>>;
}

function json(status: number, body: object): HealthAnswer {
  return { status, type: "application/json; charset=utf-8", body: JSON.stringify(body) };
}
