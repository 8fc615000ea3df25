import { KhalaError } from "@khala/contracts";
import type { Context } from "../../kit/context.ts";

/** What a socket's client is told of an error; one that is not ours is logged and stays with us. */
export function shownError(error: unknown, { log }: Pick<Context, "log">): KhalaError {
  if (error instanceof KhalaError) return error;
  log.error({ err: error }, "a socket's request failed");
  return new KhalaError("internal", "Something went wrong on the server. It is logged there; try again.");
}
