import type { EventJson } from "@khala/contracts/conversation/v1";
import { notFound } from "../../access/access.ts";
import type { StoredBytes } from "../../database/stored_bytes.ts";
import { openBranches } from "../messages/branches.ts";
import { openMessageStore } from "../messages/message_store.ts";
import { type PostDeps, postEvents } from "./post_events.ts";

/** An agent of the blackboard, and the conversation that its work belongs to. */
export interface AgentPoster {
  readonly org: string;
  readonly agent: string;
  readonly conversation: { readonly conv_id?: string; readonly generation?: string };
}

/**
 * Posts for agents of the blackboard, as the author `agent:<name>`. The work names the conversation, and not the agent: whose
 * work belongs to none cannot post. A conversation that was created since under the same name is another one.
 */
export function openAgentPosts(
  deps: PostDeps & { readonly stored?: StoredBytes },
): (work: AgentPoster, events: readonly EventJson[]) => Promise<void> {
  const { database, log, stored } = deps;
  const branches = openBranches({ database, log, messages: openMessageStore(database) });
  return async ({ org, agent, conversation }, events) => {
    const { conv_id: convId = "", generation: sent = "0" } = conversation;
    const generation = BigInt(sent);
    const [row] = await database.query<{ logName: string; unannounced: boolean }>({
      name: "conversation_of_agent",
      text: `SELECT log_name AS "logName", announce_from IS NOT NULL AS unannounced FROM runtime.conversations
        WHERE org_id = $1 AND conv_id = $2 AND generation = $3 AND removed_at IS NULL`,
      values: [org, convId, generation],
    });
    if (!row) throw notFound("conversation", convId);
    stored?.take(org, "conversations", Buffer.byteLength(JSON.stringify(events)));
    const ref = { org, convId, generation, logName: row.logName };
    if (row.unannounced) await branches.announce(ref);
    const poster = { author: `agent:${agent}`, asSystem: false, repeats: true, role: "assistant" } as const;
    await postEvents(deps, ref, poster, events);
  };
}
