import { KhalaError } from "@khala/contracts";
import type { EventJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { pino } from "pino";
import { notFound } from "../../access/access.ts";
import type { Context } from "../../kit/context.ts";
import type { EngineEvent, Turn, TurnFile } from "../engines/engine.ts";
import { checkEngineEvent } from "../engines/engine_turn.ts";
import { PublicError } from "../engines/public_error.ts";
import { fileIdOf } from "../files/file_urls.ts";
import type { Files } from "../files/files.ts";
import { partsOf } from "../messages/question.ts";
import type { ConversationOptions } from "../options.ts";
import type { ClaimedRun } from "../queue/admission.ts";

export interface TurnOptions extends Pick<Turn, "messageId" | "resume" | "reportError"> {
  readonly run: ClaimedRun;
  readonly history: readonly TranscriptMessageJson[];
  readonly signal: AbortSignal;
  readonly trace: string | null;
  readonly files: Files;
  /** Publishes an event of the run; a returned promise is backpressure. */
  readonly publish: (event: EventJson) => Promise<void> | undefined;
  readonly publishOnBoard: ConversationOptions["publish"];
}

/** The turn of a run, as its engine gets it. */
export function openTurn(context: Context, options: TurnOptions): Turn {
  const { run, messageId, history, resume, signal, trace, reportError, publishOnBoard } = options;
  const { convId, org, subject, runId, sender, message } = run;
  return {
    ...{ convId, org, subject, runId, messageId, sender, message, history, signal },
    ...(resume && { resume }),
    reportError,
    parts: partsOf(run),
    params: run.params ?? {},
    tools: run.tools ?? [],
    logger: context.log.child({ run: runId, conversation: convId, org }),
    ...(trace !== null && { trace }),
    async post(...events) {
      for (const event of events) await post(context, options, event);
    },
    readFile: (url) => readFile(options, url),
    async publish(drafts) {
      const conversation = { conv_id: convId, generation: String(run.generation) };
      return publishOnBoard({ org, subject, trace, conversation }, drafts);
    },
  };
}

/** A turn to test an engine with. Nothing is published, and there are no files, unless `more` has the functions for it. */
export function testTurn(message: string, more: Partial<Turn> = {}): Turn {
  const ids = { convId: "c1", org: "acme", subject: "ada", sender: "ada", runId: "r1", messageId: "m1" };
  return {
    ...ids,
    ...{ message, parts: [{ text: message }], params: {}, tools: [], history: [] },
    signal: new AbortController().signal,
    logger: pino({ level: "silent" }),
    post: async () => {},
    readFile: async (url) => {
      throw notFound("file", url);
    },
    reportError: (error) => (error instanceof PublicError ? error.message : "The tool failed."),
    publish: async () => [],
    ...more,
  };
}

async function post({ clock, newId }: Context, { signal, publish }: TurnOptions, event: EngineEvent) {
  if (signal.aborted) return;
  // A message of its own, and not a part of the answer.
  const checked = checkEngineEvent(event, { messageId: newId(), now: () => clock.now() });
  if ("finished" in checked) throw new Error("Only the engine may finish a turn. Do not post run_finished.");
  await publish(checked.event);
}

async function readFile({ files, run }: TurnOptions, url: string): Promise<TurnFile> {
  const fileId = fileIdOf(url);
  if (fileId === undefined) {
    const message =
      "readFile reads the files of this conversation, by /files/<file_id>. Fetch other URLs yourself.";
    throw new KhalaError("invalid_request", message, { field: "url" });
  }
  const file = await files.find({ org: run.org, fileId });
  if (file?.convId !== run.convId) throw notFound("file", fileId);
  const pieces: Uint8Array[] = [];
  for await (const piece of files.read(file)) pieces.push(piece);
  return { name: file.name, mediaType: file.mediaType, bytes: Buffer.concat(pieces) };
}
