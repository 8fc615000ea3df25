import { useKhala } from "@khala/client/react";
import { useMemo, useState } from "react";
import { type Asked, useAsk } from "../parts/asking.ts";
import type { ListedConversation } from "./types.ts";

const EVERY_MS = 3_000;
const PAGE = 50;
const MOST = 1_000;

/** Whose conversations are listed. */
export type Whose = "own" | "org";

export interface ConversationList {
  readonly asked: Asked<readonly ListedConversation[]>;
  readonly more: boolean;
  readonly loadMore: () => void;
}

/** The conversations, newest first: a person's own, or those of the org, without what is said in them. */
export function useConversationList(whose: Whose): ConversationList {
  const khala = useKhala();
  const [limit, setLimit] = useState(PAGE);
  const asked = useAsk(
    `${whose} ${limit}`,
    async () => {
      if (whose === "org") {
        const { conversations = [], next } = await khala.ops.conversations({ limit });
        const rows = conversations.map(
          (wire): ListedConversation => ({
            convId: wire.conv_id ?? "",
            title: "",
            updatedAt: wire.updated_at ?? "",
            run: wire.run_status ?? "",
            subject: wire.subject ?? "",
            sockets: Number(wire.sockets ?? 0),
          }),
        );
        return { rows, more: next !== undefined };
      }
      const { conversations = [], next } = await khala.conversations.list({ limit });
      const rows = conversations.map(
        (wire): ListedConversation => ({
          convId: wire.conv_id ?? "",
          title: wire.title ?? "",
          updatedAt: wire.updated_at ?? "",
          run: wire.run?.status ?? "",
        }),
      );
      return { rows, more: next !== undefined };
    },
    { everyMs: EVERY_MS },
  );
  const { data, error, loading, again } = asked;
  return useMemo(
    () => ({
      asked: { data: data?.rows, error, loading, again },
      more: data?.more === true && limit < MOST,
      loadMore: () => setLimit((now) => Math.min(MOST, now + 4 * PAGE)),
    }),
    [data, error, loading, again, limit],
  );
}
