import { may, notFound, reachesOrg } from "../access/access.ts";
import type { Caller } from "../access/viewer.ts";
import { type Append, type Authority, isStreamId } from "./authority.ts";
import { checkEventData } from "./stream.ts";

/** An append as a caller asks for it. */
export type CallerAppend = Omit<Append, "org" | "actor" | "ownerOnly">;

/**
 * Appends for a caller: to its own streams, with `runtime:service` to every stream of its org, and otherwise as the stream's
 * `authorize` says. A stream that is not the caller's is not_found. Only `authorize` costs a query: else the append compares.
 */
export async function appendAs(authority: Authority, caller: Caller, request: CallerAppend): Promise<bigint> {
  const { org, subject: actor } = caller;
  const ownerOnly = request.stream.authorize
    ? await authorized(authority, caller, request)
    : !reachesOrg(caller, "stream.append");
  return authority.append({ ...request, org, actor, ownerOnly });
}

/** Throws unless the stream's `authorize` allows every event; whether the stream must still be the caller's. */
async function authorized(authority: Authority, caller: Caller, request: CallerAppend): Promise<boolean> {
  const { stream, streamId: id } = request;
  const { org } = caller;
  // An id that no stream can have is refused by the append.
  const found = isStreamId(id) ? await authority.find({ org, kind: stream.kind, streamId: id }) : undefined;
  const state = { id, ...(found ?? { owner: caller.subject, seq: 0n }) };
  const resource = { org, owner: state.owner, streamScope: stream.scope };
  request.events.forEach(({ type, data = {} }, i) => {
    const event = { type, data: checkEventData(stream, type, data, `events[${i}]`) };
    const allowed = stream.authorize!(caller, state, event) ?? may(caller, "stream.append", resource);
    if (!allowed) throw notFound(stream.kind, id);
  });
  // Somebody else may start it meanwhile: then what was decided is not about that stream.
  return !found;
}
