import { topicForConv } from "@khala/contracts";
import { TimelineView } from "@khala/test-support/clients/timeline_view";
import { everything } from "@khala/test-support/conformance/log/support";
import { expect } from "vitest";
import type { Log } from "../../../packages/server/src/conversations/log/log.ts";
import { outcomeOf } from "../../../packages/server/src/conversations/runs/outcome.ts";
import { readEntry } from "../../../packages/server/src/conversations/timeline/timeline.ts";

/** What the log of a conversation says. */
export interface Story {
  /** The sequence of the last entry. */
  readonly head: bigint;
  /** The text of each message. */
  readonly texts: ReadonlyMap<string, string>;
  /** The runs in their order, and how each ended: `finished`, `stopped`, or why it failed. */
  readonly runs: ReadonlyMap<string, string | undefined>;
}

/** Reads a log, and fails if it is not one run after the other, each with one end and nothing after it. */
export async function readStory(log: Log, convId: string): Promise<Story> {
  const entries = await everything(log, topicForConv(convId));
  const view = new TimelineView();
  const runs = new Map<string, string | undefined>();
  let open: string | undefined;
  for (const [i, entry] of entries.entries()) {
    const { seq, runId, event } = readEntry(entry);
    expect(seq, `${convId}: the sequence has no hole`).toBe(BigInt(i + 1));
    if (event.run_started) {
      expect(open, `${convId}: one run at a time`).toBeUndefined();
      open = runId;
      runs.set(runId, undefined);
    }
    // Empty is what belongs to no run, such as the notice of a server that takes over.
    if (runId !== "") expect(runId, `${convId}: entry ${seq} is of the run under way`).toBe(open);
    view.apply({ type: "event", seq: String(seq), event });
    const end = outcomeOf(event);
    if (!end) continue;
    runs.set(runId, end.kind === "failed" ? end.code : end.kind);
    open = undefined;
  }
  return { head: BigInt(entries.length), texts: view.texts, runs };
}
