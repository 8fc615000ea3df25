import type { EventJson, RunJson } from "@khala/contracts/conversation/v1";
import fc from "fast-check";
import { expect, test } from "vitest";
import { Transcript as ServerTranscript } from "../../../server/src/conversations/timeline/transcript.ts";
import { limitSize, MAX_CHARACTERS } from "./conversation_store.ts";
import type { ConversationFrame, ConversationState } from "./source.ts";
import { apply, asked, delta, type Entry, eventFrame, framesOf, ofRun, started } from "./test_support.ts";
import { EMPTY, fromStored, reduce, restoreState, type Transcript } from "./transcript.ts";

/** The server's side: the messages after a number of log entries. */
function serverAt(log: readonly Entry[], seq: number) {
  const transcript = new ServerTranscript();
  for (const { runId, event } of log.slice(0, seq)) transcript.add({ runId, event });
  const run: RunJson | null = transcript.running ? { run_id: transcript.running, status: "running" } : null;
  return { messages: transcript.last(), run };
}

const shown = ({ messages, run }: Transcript) => ({ messages, run: run?.run_id });

/** A run as an engine may write it: one to three messages, some tools, one end, or none if it is the last. */
const run = fc.record({
  events: fc.array(
    fc.oneof(
      {
        weight: 6,
        arbitrary: fc.record({ kind: fc.constant("text"), text: fc.string(), message: fc.nat(2) }),
      },
      {
        weight: 1,
        arbitrary: fc.record({
          kind: fc.constantFrom(
            "reasoning",
            "call",
            "result",
            "custom",
            "status",
            "whole",
            "again",
            "parts",
            "file",
            "source",
            "resumed",
            "foreign",
          ),
          text: fc.string(),
          message: fc.nat(2),
        }),
      },
    ),
    { maxLength: 12 },
  ),
  end: fc.constantFrom("run_finished", "run_failed", "run_stopped"),
});

const logs = fc
  .record({ runs: fc.array(run, { minLength: 1, maxLength: 4 }), open: fc.boolean() })
  .map(({ runs, open }) =>
    runs.flatMap(({ events, end }, r): Entry[] => {
      const runId = `run-${r}`;
      const ends = open && r === runs.length - 1 ? [] : [{ runId, event: { [end]: {} } as EventJson }];
      const said = events.map(({ kind, text, message }, i): Entry => {
        const message_id = `m-${r}-${message}`;
        const tool = { message_id, tool_call_id: `t-${message}`, tool: "search" };
        const of: Record<string, EventJson> = {
          text: delta(text, message_id),
          reasoning: { reasoning_delta: { message_id, text } },
          call: { tool_call: { ...tool, input: { text } } },
          result: { tool_result: { ...tool, output: text } },
          custom: { custom: { name: "n", data: text, message_id } },
          status: { status: { text } },
          whole: { message: { message_id: `w-${r}-${i}`, role: "assistant", text } },
          again: { message: { message_id, role: "assistant", text, author: "agent:a" } },
          parts: {
            message: { message_id: `p-${r}-${i}`, role: "assistant", parts: [{ text }, { reasoning: text }] },
          },
          file: { file_added: { message_id, file: { url: text } } },
          source: { source_added: { message_id, source: { url: text } } },
          resumed: { run_resumed: { attempt: 1, kept: [{ message_id, parts: i }] } },
          foreign: { status: { text } },
        };
        return { runId: kind === "foreign" ? "" : runId, event: of[kind]! };
      });
      return [...ofRun(runId, started, asked("?", `u-${r}`)), ...said, ...ends];
    }),
  );

/** The faults of the connection: how many frames arrive, and how the client continues after a break. */
const breaks = fc.array(
  fc.record({
    after: fc.nat(8),
    repeat: fc.nat(3),
    how: fc.constantFrom("resume", "resync", "reload", "tab", "device"),
    /** The run's record may lag behind its log. */
    lag: fc.boolean(),
  }),
  { maxLength: 6 },
);

test("folds any log to the same messages as the server", () => {
  fc.assert(
    fc.property(logs, (log) => {
      const { messages, run: running } = serverAt(log, log.length);
      const transcript = apply(framesOf(log));
      expect(transcript.messages).toEqual(messages);
      expect(transcript.run?.run_id).toBe(running?.run_id);
    }),
  );
});

test("cuts, repeated frames and snapshots give the same transcript as the uninterrupted log", () => {
  fc.assert(
    fc.property(logs, breaks, fc.constantFrom(200, MAX_CHARACTERS), (log, plan, room) => {
      let transcript = EMPTY;
      let seq = 0;
      let device: { kept: ConversationState; seq: number } | undefined;
      const deliver = (count: number, repeat: number) => {
        for (let i = 0; i < count && seq < log.length; i++) {
          transcript = reduce(transcript, eventFrame(log[seq]!, ++seq));
          for (let back = 0; back < Math.min(repeat, seq); back++)
            transcript = reduce(transcript, eventFrame(log[seq - 1 - back]!, seq - back));
        }
      };
      for (const { after, repeat, how, lag } of plan) {
        // The device's stored state is somewhat older than the break.
        if (transcript.cursor !== "") device = { kept: limitSize(transcript, room), seq };
        deliver(after, repeat);
        const head = Math.min(log.length, seq + after);
        const { messages, run: running } = serverAt(log, head);
        const record = lag ? serverAt(log, Math.max(0, head - 1)).run : running;
        const snapshot = { type: "snapshot", messages, cursor: `e-${head}` };
        const hello = { type: "hello", cursor: `e-${how === "resume" ? seq : head}`, run: record };
        if (how === "reload") transcript = EMPTY;
        if (how === "device" && device) {
          transcript = fromStored(JSON.parse(JSON.stringify(device.kept)));
          if (transcript.cursor !== "") {
            seq = device.seq;
            continue;
          }
        }
        if (how === "tab") {
          const { cursor, seq: at } = transcript;
          if (cursor !== "")
            transcript = restoreState(EMPTY, {
              messages: transcript.messages,
              run: transcript.run,
              cursor,
              seq: at,
            });
          continue;
        }
        transcript = reduce(transcript, hello as ConversationFrame);
        if (how === "resync") transcript = reduce(transcript, { type: "resync", reason: "trimmed" });
        if (how !== "resume") {
          transcript = reduce(transcript, snapshot);
          seq = head;
          expect(transcript.messages).toEqual(messages);
        }
      }
      deliver(log.length, 0);
      const uncut = apply(framesOf(log));
      expect(transcript.messages).toEqual(uncut.messages);
      // Once the log continues after the last break, the active run is known as well.
      if (transcript.memory.exact) expect(shown(transcript)).toEqual(shown(uncut));
    }),
    { numRuns: 150 },
  );
});
