import { KhalaError } from "@khala/contracts";
import type { ParticipantJson, ParticipantListJson } from "@khala/contracts/conversation/v1";
import type { ParticipantRole } from "../../access/actions.ts";
import type { Database } from "../../database/database.ts";
import type { Announcer } from "../announce.ts";
import type { ConversationRef } from "../conversation.ts";

/** A conversation with its owner. */
export interface OwnedConversation extends ConversationRef {
  readonly owner: string;
}

/** The participants of conversations, besides their owners. */
export interface Participants {
  /** The owner, then the others in the order in which they were added. */
  list(conversation: OwnedConversation): Promise<ParticipantListJson>;
  /** Adds a participant, or changes the role of one. */
  put(conversation: OwnedConversation, subject: string, role: ParticipantRole): Promise<ParticipantListJson>;
  /** Removes a participant, if there is one of this name. */
  remove(conversation: OwnedConversation, subject: string): Promise<ParticipantListJson>;
}

const MAX_PARTICIPANTS = 100;

/** Opens the participants. `changed` is called after every change. */
export function openParticipants(
  database: Database,
  announcer: Announcer,
  changed: () => void,
): Participants {
  const others = ({ org, convId }: ConversationRef) =>
    database.query<Required<Pick<ParticipantJson, "subject" | "role">>>({
      name: "conversation_participants",
      text: `SELECT subject, role FROM runtime.participants WHERE org_id = $1 AND conv_id = $2
        ORDER BY added_at, subject`,
      values: [org, convId],
    });

  async function list(conversation: OwnedConversation): Promise<ParticipantListJson> {
    const owner = { subject: conversation.owner, role: "owner" };
    return { participants: [owner, ...(await others(conversation))] };
  }

  async function announced(conversation: OwnedConversation): Promise<ParticipantListJson> {
    changed();
    await announcer.announce(conversation, async () => ({
      participants_changed: { participants: await others(conversation) },
    }));
    return list(conversation);
  }

  return {
    list,

    async put(conversation, subject, role) {
      const { org, convId, generation, owner } = conversation;
      if (subject === owner) throw invalid("The owner is already a participant with all rights.");
      const [row] = await database.query<{ full: boolean }>({
        name: "conversation_put_participant",
        text: `WITH locked AS MATERIALIZED (
            SELECT org_id, conv_id FROM runtime.conversations
            WHERE org_id = $1 AND conv_id = $2 AND generation = $3 AND removed_at IS NULL FOR NO KEY UPDATE
          ), counted AS (
            SELECT count(*) FILTER (WHERE p.subject <> $4) >= $6 AS full FROM locked
            LEFT JOIN runtime.participants p ON p.org_id = $1 AND p.conv_id = $2
          ), added AS (
            INSERT INTO runtime.participants (org_id, conv_id, subject, role)
            SELECT $1, $2, $4, $5 FROM locked, counted WHERE NOT counted.full
            ON CONFLICT (org_id, conv_id, subject) DO UPDATE SET role = excluded.role
          )
          SELECT "full" FROM counted`,
        values: [org, convId, generation, subject, role, MAX_PARTICIPANTS],
      });
      if (row?.full) {
        const message = `A conversation may have at most ${MAX_PARTICIPANTS} participants. Remove one first.`;
        throw new KhalaError("limit_exceeded", message, { field: "subject" });
      }
      return announced(conversation);
    },

    async remove(conversation, subject) {
      const { org, convId } = conversation;
      await database.query({
        name: "conversation_remove_participant",
        text: "DELETE FROM runtime.participants WHERE org_id = $1 AND conv_id = $2 AND subject = $3",
        values: [org, convId, subject],
      });
      return announced(conversation);
    },
  };
}

/** Refuses a subject or a role that cannot be a participant's. */
export function checkParticipant(subject: string, role = "viewer"): ParticipantRole {
  if (!/^\P{Cc}{1,255}$/u.test(subject) || !subject.isWellFormed())
    throw invalid("A subject must have 1 to 255 characters, without control characters.");
  if (role === "member" || role === "viewer") return role;
  throw new KhalaError("invalid_request", 'role must be "member" or "viewer".', { field: "role" });
}

function invalid(message: string): KhalaError {
  return new KhalaError("invalid_request", message, { field: "subject" });
}
