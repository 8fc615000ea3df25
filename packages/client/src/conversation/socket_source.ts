import { CONVERSATION_CHANNEL } from "@khala/contracts";
import type { Channel, Connection } from "../connection/port.ts";
import type { ConversationFrame, ConversationSink, ConversationSource } from "./source.ts";

/** The newest messages of a join. Older ones are at GET /chat/:conv_id/messages. */
const REPLAY = 1_000;

/** Follows conversations on this tab's socket. */
export function socketConversationSource(connection: Connection): ConversationSource {
  return {
    follow(convId, sink, signal) {
      if (!signal.aborted) new Following(connection, convId, sink, signal).join();
    },
  };
}

/** One conversation on its channel. */
class Following {
  readonly #connection: Connection;
  readonly #convId: string;
  readonly #sink: ConversationSink;
  #channel: Channel | undefined;
  /** Whether the state is complete and frames arrive. */
  #live = false;

  constructor(connection: Connection, convId: string, sink: ConversationSink, signal: AbortSignal) {
    this.#connection = connection;
    this.#convId = convId;
    this.#sink = sink;
    signal.addEventListener("abort", () => this.#leave(), { once: true });
  }

  join(): void {
    this.#channel = this.#connection.channel(`${CONVERSATION_CHANNEL}${this.#convId}`, {
      params: () => {
        this.#live = false;
        const after = this.#sink.position();
        return after === undefined ? { replay: REPLAY } : { after };
      },
      onJoined: () => {},
      onEvent: (event, payload) => {
        if (event === "frame") this.#frame(payload as ConversationFrame);
      },
      onLeft: (error) => this.#sink.health(false, error),
    });
  }

  #frame(frame: ConversationFrame): void {
    this.#sink.frame(frame);
    if (!this.#live && this.#sink.position() !== undefined) {
      this.#live = true;
      this.#sink.health(true);
    }
  }

  #leave(): void {
    this.#channel?.leave();
    this.#channel = undefined;
  }
}
