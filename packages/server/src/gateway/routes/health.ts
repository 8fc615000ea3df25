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

/** `GET /healthz`, `/readyz`, `/metrics`. */
export function healthRoutes(
  http: Http,
  { health, scrape }: { health: Health; scrape: () => Promise<string> },
): void {
  http.app.get("/healthz", async () => ({ status: "ok" }));

  http.app.get("/readyz", async (_request, reply) => {
    const dependencies = await health();
    const states = Object.values(dependencies).map(({ state }) => state);
    const status = states.includes("unavailable")
      ? "unavailable"
      : states.includes("degraded")
        ? "degraded"
        : "ok";
    // Degraded still serves: taking it out of rotation would make it worse.
    return reply.code(status === "unavailable" ? 503 : 200).send({ status, dependencies });
  });

  http.app.get("/metrics", async (_request, reply) => {
    return reply.type("text/plain; version=0.0.4; charset=utf-8").send(await scrape());
  });
}
