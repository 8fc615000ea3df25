import type { FastifyRequest } from "fastify";

/** Whether the client has the answer with this tag already, so that 304 is enough. */
export function isKnown({ headers }: FastifyRequest, etag: string): boolean {
  const tags = headers["if-none-match"]?.split(",").map((tag) => tag.trim().replace(/^W\//, "")) ?? [];
  return tags.includes(etag) || tags.includes("*");
}
