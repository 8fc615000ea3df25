import { may, notFound, reachesOrg } from "../access/access.ts";
import type { Caller } from "../access/viewer.ts";
import { type Append, type Authority, isStreamId } from "./authority.ts";

/** An append as a caller asks for it. */
export type CallerAppend = Omit<Append, "org" | "actor" | "ownerOnly" | "authorize">;

/**
 * Appends for a caller: to its own streams, with `runtime:service` to every stream of its org, and otherwise as the stream's
 * `authorize` says. A stream that is not the caller's is not_found. Only `authorize` costs a query: else the append compares.
 */
export async function appendAs(authority: Authority, caller: Caller, request: CallerAppend): Promise<bigint> {
  const { org, subject: actor } = caller;
  const rules = request.stream.authorize
    ? await authorization(authority, caller, request)
    : { ownerOnly: !reachesOrg(caller, "stream.append") };
  return authority.append({ ...request, ...rules, org, actor });
}

/** Asks the stream's `authorize` about every event; whether the stream must still be the caller's. */
async function authorization(
  authority: Authority,
  caller: Caller,
  { stream, streamId: id }: CallerAppend,
): Promise<Pick<Append, "ownerOnly" | "authorize">> {
  const { org } = caller;
  // An id that no stream can have is refused by the append.
  const found = isStreamId(id) ? await authority.find({ org, kind: stream.kind, streamId: id }) : undefined;
  const state = { id, ...(found ?? { owner: caller.subject, seq: 0n }) };
  const resource = { org, owner: state.owner, streamScope: stream.scope };
  return {
    // Another caller may create it in between: then the decision does not apply to that stream.
    ownerOnly: !found,
    authorize(event) {
      const allowed = stream.authorize!(caller, state, event) ?? may(caller, "stream.append", resource);
      if (!allowed) throw notFound(stream.kind, id);
    },
  };
}
