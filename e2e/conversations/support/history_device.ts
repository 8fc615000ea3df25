import type { ConversationFrame } from "../../../packages/client/src/conversation/source.ts";
import {
  EMPTY,
  leavesGap,
  reduce,
  type Transcript,
} from "../../../packages/client/src/conversation/transcript.ts";
import type { Viewer } from "../../../packages/server/src/access/viewer.ts";
import { parseCursor } from "../../../packages/server/src/conversations/log/cursor.ts";
import type { Attached } from "../../../packages/server/src/conversations/plane.ts";
import type { TestServer } from "../../../packages/server/src/conversations/test_support.ts";
import type { TimelineSubscriber } from "../../../packages/server/src/conversations/timeline/attachment.ts";
import type { OutgoingFrames } from "../../../packages/server/src/conversations/timeline/timeline.ts";

const REPLAY = 1_000;

/** A device that shows a conversation with the code of @khala/client. */
export class HistoryDevice {
  readonly #viewer: Viewer;
  readonly #convId: string;
  transcript: Transcript = EMPTY;
  server: TestServer | undefined;
  /** What the server did wrong. */
  failure: Error | undefined;
  #attached: Attached | undefined;
  /** Of the attachment whose frames count. */
  #current = {};

  constructor(viewer: Viewer, convId: string) {
    this.#viewer = viewer;
    this.#convId = convId;
  }

  /** Whether it follows the conversation from a position. */
  get live(): boolean {
    return this.server !== undefined && this.transcript.cursor !== "";
  }

  forget(): void {
    this.detach();
    this.transcript = EMPTY;
  }

  detach(): void {
    this.lose();
    this.#attached?.close();
    this.#attached = undefined;
  }

  /** Its line is cut: nobody tells the server. */
  lose(): void {
    this.#current = {};
    this.server = undefined;
  }

  async attach(server: TestServer): Promise<void> {
    this.detach();
    const current = {};
    this.#current = current;
    this.server = server;
    const { cursor } = this.transcript;
    const subscriber: TimelineSubscriber = {
      offer: ({ frames }: OutgoingFrames) => {
        for (const { json } of frames) if (this.#current === current) this.#apply(JSON.parse(json));
        return true;
      },
      end: () => {
        if (this.#current === current) this.lose();
      },
    };
    const start =
      cursor === ""
        ? ({ kind: "replay", messages: REPLAY } as const)
        : ({ kind: "after", cursor: parseCursor(cursor, "after") } as const);
    const attached = await server.plane.attach(this.#viewer, this.#convId, subscriber, start);
    if (this.#current === current) this.#attached = attached;
    else attached.close();
  }

  #apply(frame: ConversationFrame): void {
    if (leavesGap(this.transcript, frame))
      this.failure ??= new Error(`After ${this.transcript.cursor} came ${JSON.stringify(frame)}.`);
    const had = this.transcript.cursor !== "";
    this.transcript = reduce(this.transcript, frame);
    // A branch that is too long for an event: it reads again.
    if (had && this.transcript.cursor === "") this.lose();
  }
}
