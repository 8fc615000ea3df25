import type { ParticipantRole } from "../../access/actions.ts";
import type { Database } from "../../database/database.ts";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import type { ConversationId } from "../conversation.ts";

/** A participant of a conversation. */
export interface Membership extends ConversationId {
  readonly subject: string;
  readonly role: ParticipantRole | null;
}

/** The participants whose sockets and streams are open on this server, so that those of removed ones end. */
export interface Memberships extends Service {
  /** Calls `changed` whenever the role is another one, until the returned function is called. */
  watch(membership: Membership, changed: (role: ParticipantRole | null) => void): () => void;
  /** Reads the roles now: a participant was added, changed or removed. */
  recheck(): void;
}

interface Watched {
  readonly membership: Membership;
  role: ParticipantRole | null;
  readonly changed: (role: ParticipantRole | null) => void;
}

/** How often roles are read when a wakeup was lost. */
const CHECK_MS = 1_000;
const BATCH_SIZE = 1_000;

/** Opens the memberships. */
export function openMemberships(context: Context, database: Database): Memberships {
  const all = new Set<Watched>();
  /** Watched since the last step: their roles may have changed after they were read. */
  const added = new Set<Watched>();
  const wake = new Wake();
  let checkedAt = Number.NEGATIVE_INFINITY;

  async function check(batch: readonly Watched[]): Promise<void> {
    const rows = await database.query<{ n: number; role: ParticipantRole | null }>({
      name: "conversation_roles",
      text: `SELECT w.n::int AS n, p.role FROM unnest($1::text[], $2::text[], $3::text[])
          WITH ORDINALITY AS w(org_id, conv_id, subject, n)
        LEFT JOIN LATERAL (
          SELECT p.role FROM runtime.participants p
          WHERE p.org_id = w.org_id AND p.conv_id = w.conv_id AND p.subject = w.subject OFFSET 0
        ) p ON true`,
      values: [
        batch.map(({ membership }) => membership.org),
        batch.map(({ membership }) => membership.convId),
        batch.map(({ membership }) => membership.subject),
      ],
    });
    for (const { n, role } of rows) {
      const watched = batch[n - 1]!;
      if (watched.role === role || !all.has(watched)) continue;
      watched.role = role;
      watched.changed(role);
    }
  }

  const checking = runLoop(context, "conversation roles", {
    wake,
    idleMs: CHECK_MS,
    async step() {
      const now = context.clock.now();
      const isDue = Math.abs(now - checkedAt) >= CHECK_MS;
      const watched = [...(isDue ? all : added)];
      if (isDue) checkedAt = now;
      added.clear();
      try {
        for (let at = 0; at < watched.length; at += BATCH_SIZE)
          await check(watched.slice(at, at + BATCH_SIZE));
      } catch (error) {
        checkedAt = Number.NEGATIVE_INFINITY;
        throw error;
      }
      return false;
    },
  });

  return {
    watch(membership, changed) {
      const watched: Watched = { membership, role: membership.role, changed };
      all.add(watched);
      added.add(watched);
      wake.wake();
      return () => {
        all.delete(watched);
        added.delete(watched);
      };
    },
    recheck() {
      checkedAt = Number.NEGATIVE_INFINITY;
      wake.wake();
    },
    stop: () => checking.stop(),
  };
}
