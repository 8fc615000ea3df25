import { openApiDocument } from "../../openapi/document.ts";
import type { Http } from "../http.ts";

/** `GET /openapi.json`: every route of this server. Call it after the other routes are added. */
export function openApiRoute(http: Http, version: string): void {
  let body: string | undefined;
  http.open("GET", "/openapi.json", async (_request, reply) => {
    body ??= JSON.stringify(openApiDocument(http.routes, version));
    return reply.header("Cache-Control", "no-cache").type("application/json; charset=utf-8").send(body);
  });
}
