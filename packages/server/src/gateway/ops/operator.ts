import { SCOPES } from "@khala/contracts";
import type { FastifyRequest } from "fastify";
import { requireScope, type Viewer } from "../auth/claims.ts";
import type { Http } from "../http/http.ts";

/** Who asks, if the token allows to operate. */
export async function operator(http: Http, request: FastifyRequest): Promise<Viewer> {
  const viewer = await http.viewer(request);
  requireScope(viewer, SCOPES.ops);
  return viewer;
}
