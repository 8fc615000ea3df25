import type { FastifyRequest } from "fastify";
import { loopbackHost, originAllowed } from "./origin.ts";

/** Whether a request comes from this machine, and not from a foreign page that is open on it. */
export function isLocal(request: FastifyRequest, origins: readonly string[]): boolean {
  const { origin, host } = request.headers;
  const address = request.ip.replace(/^::ffff:/, "");
  const fromHere = address === "::1" || address.startsWith("127.");
  // The host is checked too, or a foreign page could reach us through a name that it points at this machine.
  return fromHere && loopbackHost(host) && originAllowed(origin, origins, host ?? "");
}
