import type { EventJson } from "@khala/contracts/conversation/v1";
import type { Context } from "../kit/context.ts";
import type { ConversationRef } from "./conversation.ts";
import { type Log, StreamGone } from "./log/log.ts";
import { entryText } from "./runs/run_log.ts";

/** How often another server's change is announced again. */
const MAX_ANNOUNCEMENTS = 5;

/** Appends events without a run that carry a whole list of the database. */
export interface Announcer {
  /**
   * Appends the event that `read` makes of the list, after other entries. It never fails: the next `hello` has the list too.
   * Two servers may append their lists in the wrong order, so each reads again after its append: the last list in the log is
   * the true one.
   */
  announce(
    conversation: ConversationRef,
    read: () => Promise<EventJson>,
    before?: readonly string[],
  ): Promise<void>;
}

/** Opens the announcer. */
export function openAnnouncer(context: Pick<Context, "log">, log: Log): Announcer {
  return {
    async announce({ logName, generation, convId }, read, before = []) {
      try {
        const { epoch } = await log.open(logName, generation);
        let last: string | undefined;
        for (let i = 0; i < MAX_ANNOUNCEMENTS; i++) {
          const change = entryText("", await read());
          if (change === last) return;
          await log.append(logName, i === 0 ? [...before, change] : [change], { epoch });
          last = change;
        }
      } catch (error) {
        if (error instanceof StreamGone) return;
        context.log.warn(
          { err: (error as Error).message, conversation: convId },
          "a change of a conversation could not be announced",
        );
      }
    },
  };
}
