import { KhalaError } from "@khala/contracts";
import type { DecideToolResponseJson } from "@khala/contracts/conversation/v1";
import { notFound } from "../../access/access.ts";
import type { Audit } from "../../access/audit.ts";
import type { Caller } from "../../access/viewer.ts";
import type { ConversationPlane } from "../../conversations/plane.ts";
import type { CallDecision } from "../../conversations/waiting/decide.ts";
import type { FollowedRun } from "./ai_run.ts";

/** A request without a new message, which decides the tool calls that a run waits for. */
export interface Continuation {
  readonly convId: string;
  /** Older ones may be among them: clients send the whole message again. */
  readonly decisions: readonly CallDecision[];
  /** The part of the run that the client has: ids of messages and tool calls. */
  readonly known: KnownParts;
}

/** The part that a client has of a run that its stream continues. */
export interface KnownParts {
  readonly messages: readonly string[];
  readonly calls: readonly string[];
  /** The calls that the client itself has executed. */
  readonly executed: readonly string[];
}

/** Nothing: the stream begins with the run. */
export const NOTHING_KNOWN: KnownParts = { messages: [], calls: [], executed: [] };

/** Refused as a decision, without an effect on the others: executed by the server, or decided before. */
const PASSED_OVER: ReadonlySet<string> = new Set(["not_found", "already_decided"]);

export interface ContinueDeps {
  readonly conversations: Pick<ConversationPlane, "decideCalls">;
  readonly audit: Pick<Audit, "around">;
}

/** Decides the calls, each with an entry in the audit log. Throws unless at least one of the decisions is the run's. */
export async function continueRun(
  { conversations, audit }: ContinueDeps,
  { viewer: caller, address }: { readonly viewer: Caller; readonly address: string },
  { convId, decisions }: Continuation,
): Promise<FollowedRun> {
  let last: DecideToolResponseJson | undefined;
  let refused: unknown;
  for (const decision of decisions) {
    try {
      // An id that is no valid text is none of the server's.
      if (!decision.callId.isWellFormed()) throw notFound("tool call", decision.callId.toWellFormed());
      const resource = `/chat/${convId}/tools/${encodeURIComponent(decision.callId)}`.slice(0, 600);
      const what = { viewer: caller, action: "tool_call.decide" as const, resource, address };
      last = await audit.around(what, () => conversations.decideCalls(caller, convId, [decision]));
    } catch (error) {
      if (!(error instanceof KhalaError) || !PASSED_OVER.has(error.code)) throw error;
      refused = error;
    }
  }
  if (!last) throw refused ?? nothingDecided();
  const { run_id: runId = "", cursor: after = "", pending = 0 } = last;
  return { caller, convId, runId, after, begun: true, waits: pending > 0 };
}

function nothingDecided(): KhalaError {
  const message =
    "The last message is neither from the user nor decides a tool call. Send a message, an approval or the output of a tool.";
  return new KhalaError("invalid_request", message, { field: "messages" });
}
