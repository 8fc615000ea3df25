import { type HealthOptions, healthAnswers } from "../health.ts";
import type { Http } from "../http.ts";

/** `GET /healthz`, `/readyz`, `/metrics`. */
export function healthRoutes(http: Http, options: HealthOptions): void {
  for (const [path, ask] of Object.entries(healthAnswers(options))) {
    http.app.get(path, async (_request, reply) => {
      const { status, type, body } = await ask();
      return reply.code(status).type(type).send(body);
    });
  }
}
