import { KhalaError } from "@khala/contracts";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { Database } from "../../database/database.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import type { Conversation, ConversationRef } from "../conversation.ts";
import type { Files } from "../files/files.ts";
import type { MessageStore } from "../messages/message_store.ts";
import type { ConversationPlane } from "../plane.ts";
import { contentHash } from "../queue/content_hash.ts";
import { type Queue, readQueuedContent } from "../queue/queue.ts";
import { refuseWhen } from "../timeline/followers.ts";
import { prepareTurn } from "../turns/prepare_turn.ts";
import { type Decided, decideCall } from "../waiting/decide.ts";
import { type ChatDeps, chat, checkConvId, checkMessage, END_CHECK_MS, hasEndInLog } from "./chat.ts";
import type { Leases } from "./leases.ts";

export interface RunCommandsOptions extends ChatDeps {
  readonly database: Database;
  readonly leases: Leases;
  readonly queue: Queue;
  readonly messages: MessageStore;
  readonly files: Files;
  /** The engine's schema of params. */
  readonly params: StandardSchemaV1 | undefined;
  /** Once it has aborted, the server takes no more runs. */
  readonly draining: AbortSignal;
}

/** What people do to runs: start, edit, cancel, stop, and decide what they wait for. */
export type RunCommands = Pick<
  ConversationPlane,
  "chat" | "stopRun" | "editQueued" | "cancelQueued" | "decideCalls"
>;

/** Opens the commands on runs. */
export function openRunCommands(context: Context, options: RunCommandsOptions): RunCommands {
  const { database, log, store, leases, takeover, queue, messages, files, params, draining } = options;

  /** Cancels the run if it is queued. */
  async function cancelled(conversation: ConversationRef, runId: string): Promise<boolean> {
    try {
      await queue.cancel(conversation, runId);
      return true;
    } catch (error) {
      if (error instanceof KhalaError && (error.code === "run_begun" || error.code === "not_found"))
        return false;
      throw error;
    }
  }

  /** Whether the end of the active run is in the log, and its row follows in a moment: a stop is for the run after it. */
  const isEnding = async (conversation: Conversation) =>
    !!conversation.run && !!conversation.alive && hasEndInLog(log, conversation, conversation.run);

  return {
    async chat(caller, command) {
      refuseWhen(draining.aborted);
      const { org } = caller;
      const { convId, messageId, resent } = command;
      // The files of a message that is answered again are stored already.
      const known =
        resent === "regenerate" &&
        messageId !== undefined &&
        (await messages.has({ org, convId }, messageId));
      const { parts: _, ...withoutParts } = command;
      const sent = known ? withoutParts : command;
      const prepared = await prepareTurn(context, { store, files, params }, caller, sent);
      return chat(context, options, caller, prepared, contentHash(command));
    },

    async stopRun(caller, convId, runId) {
      checkConvId(convId);
      let conversation = await store.check(caller, "conversation.write", convId);
      const deadline = context.clock.now() + options.waitMs;
      while (runId === undefined && (await isEnding(conversation)) && context.clock.now() < deadline) {
        await sleep(context.clock, END_CHECK_MS);
        conversation = await store.check(caller, "conversation.write", convId);
      }
      if (runId !== undefined && (await cancelled(conversation, runId)))
        return { run_id: runId, stopped: true };
      const stopped = await store.requestStop(conversation, "stopped", runId);
      if (!stopped) return { stopped: false };
      if (stopped.active && stopped.alive) options.stopEverywhere(stopped.runId, "stopped");
      else if (stopped.active) {
        await leases.wake({ ...conversation, runId: stopped.runId });
        await takeover.recover(conversation);
      }
      return { run_id: stopped.runId, stopped: true };
    },

    async editQueued(caller, convId, runId, edited) {
      checkConvId(convId);
      const content = readQueuedContent(edited);
      checkMessage(content.message);
      const conversation = await store.check(caller, "conversation.write", convId);
      return queue.edit(caller, conversation, runId, content);
    },

    async cancelQueued(caller, convId, runId) {
      checkConvId(convId);
      return queue.cancel(await store.check(caller, "conversation.write", convId), runId);
    },

    async decideCalls(caller, convId, decisions) {
      refuseWhen(draining.aborted);
      checkConvId(convId);
      const conversation = await store.check(caller, "tool_call.decide", convId);
      const deps = { database, log, files, waitMs: options.waitMs };
      let last: Decided | undefined;
      for (const decision of decisions) {
        last = await decideCall(context, deps, conversation, caller.subject, decision);
        if (last.resumes) await takeover.goOn(conversation);
      }
      if (!last) throw new KhalaError("invalid_request", "There is no decision in the request.");
      return last.answer;
    },
  };
}
