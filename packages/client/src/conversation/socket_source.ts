import { CONVERSATION_CHANNEL } from "@khala/contracts";
import type { Channel, Connection } from "../connection/port.ts";
import type { ConversationFrame, ConversationSink, ConversationSource } from "./source.ts";

/** The newest messages of a join. Older ones are at GET /chat/:conv_id/messages. */
const REPLAY = 1_000;

/** Follows conversations on this tab's socket. With a device name it takes part in their presence. */
export function socketConversationSource(connection: Connection, device?: string): ConversationSource {
  return {
    follow(convId, sink, signal) {
      if (!signal.aborted) new Following(connection, convId, sink, signal, device).join();
    },
  };
}

/** One conversation on its channel. */
class Following {
  readonly #connection: Connection;
  readonly #convId: string;
  readonly #sink: ConversationSink;
  readonly #device: string | undefined;
  #channel: Channel | undefined;
  /** Whether the state is complete and frames arrive. */
  #live = false;

  constructor(
    connection: Connection,
    convId: string,
    sink: ConversationSink,
    signal: AbortSignal,
    device: string | undefined,
  ) {
    this.#device = device;
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
        const from = after === undefined ? { replay: REPLAY } : { after };
        return this.#device === undefined ? from : { ...from, device: this.#device };
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
