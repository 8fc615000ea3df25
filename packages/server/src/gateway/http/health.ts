import type { Clock } from "../../kit/clock.ts";
import { withTimeout } from "../../kit/timeout.ts";
import type { Http } from "./http.ts";

/** The state of a dependency of the process. */
export interface DependencyState {
  readonly state: "ok" | "degraded" | "unavailable";
  /** The problem and how to fix it. */
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

/** A response, independent of the HTTP server. */
export interface HealthAnswer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

/** Readiness probes time out soon after this. */
const ANSWER_MS = 3_000;

/** A dead connection returns nothing, not even an error. */
const SILENT: Awaited<ReturnType<Health>> = {
  database: { state: "unavailable", message: `No answer within ${ANSWER_MS} ms.` },
};

/** The responses of `/healthz`, `/readyz` and `/metrics`, on servers and on workers. */
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

/** `GET /healthz`, `/readyz`, `/metrics`. */
export function healthRoutes(http: Http, options: HealthOptions): void {
  for (const [path, ask] of Object.entries(healthAnswers(options))) {
    http.open("GET", path, async (_request, reply) => {
      const { status, type, body } = await ask();
      return reply.code(status).type(type).send(body);
    });
  }
}
