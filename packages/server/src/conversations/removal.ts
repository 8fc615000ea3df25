import type { Wakeups } from "../database/wakeups.ts";
import type { ConversationRef } from "./conversation.ts";
import type { EngineCache } from "./engines/engine_cache.ts";
import { type ErasureDeps, eraseConversations } from "./erasure.ts";
import type { ConversationMetrics } from "./metrics.ts";
import { STOP_WAKEUP } from "./options.ts";
import type { Participants } from "./people/participants.ts";
import type { ConversationPlane } from "./plane.ts";
import { checkConvId } from "./runs/chat.ts";
import type { RunReporter } from "./runs/run_reporter.ts";
import type { Runs } from "./runs/runs.ts";
import type { Store } from "./store.ts";
import type { Readers } from "./timeline/readers.ts";

export interface RemovalOptions extends Pick<ErasureDeps, "database" | "log" | "files" | "stopRun"> {
  readonly store: Store;
  readonly runs: Runs;
  readonly reporter: RunReporter;
  readonly engines: EngineCache;
  readonly readers: Readers;
  readonly participants: Participants;
  readonly metrics: ConversationMetrics;
  readonly wakeups: Pick<Wakeups, "send">;
}

/** Opens what deletes conversations, and erases the data of a subject. */
export function openRemoval(options: RemovalOptions): Pick<ConversationPlane, "remove" | "erase"> {
  const { database, log, files, store, runs, reporter, engines, readers, metrics, wakeups } = options;
  const removeParticipant = options.participants.remove;

  /** Forgets what this server has of a conversation in memory. */
  function erased(conversation: ConversationRef): void {
    engines.drop(conversation);
    readers.missed(conversation);
  }

  const remove: ConversationPlane["remove"] = async (caller, convId) => {
    checkConvId(convId);
    const conversation = await store.check(caller, "conversation.delete", convId);
    const removal = await store.beginRemoval(conversation);
    if (!removal) return;
    const { run, fence } = removal;
    if (run) {
      runs.abandon(run.runId);
      wakeups.send(`${STOP_WAKEUP}${run.runId}`);
      reporter.report({ ...run, trace: null }, "run.stopped", {});
    }
    await log.delete(conversation.logName, conversation.generation);
    await files.erase(conversation);
    await store.endRemoval(conversation, fence);
    erased(conversation);
    metrics.deletions.add(1, { cause: "request" });
  };

  const { stopRun } = options;
  const deps = { database, log, files, remove, stopRun, removeParticipant, erased };
  return {
    remove,
    async erase(erasure) {
      const found = await eraseConversations(deps, erasure);
      // The end of a run that this removed is an event of the subject: it must be there when events are erased, not come after.
      await reporter.drain();
      return found;
    },
  };
}
