import { CONVERSATION_CHANNEL, KhalaError } from "@khala/contracts";
import type { ConversationStateJson, SnapshotJson } from "@khala/contracts/conversation/v1";
import type { Channel, Connection } from "../connection/port.ts";
import type { Http } from "../http.ts";
import type { ConversationFrame, ConversationSink, ConversationSource } from "./source.ts";

/** Maximum messages of a join; a longer conversation is read over HTTP. */
const REPLAY = 1_000;

/** Follows conversations on this tab's socket. */
export function socketConversationSource(connection: Connection, http: Http): ConversationSource {
  return {
    follow(convId, sink, signal) {
      if (!signal.aborted) new Following(connection, http, convId, sink, signal).join();
    },
  };
}

/** One conversation on its channel. */
class Following {
  readonly #connection: Connection;
  readonly #http: Http;
  readonly #convId: string;
  readonly #sink: ConversationSink;
  readonly #signal: AbortSignal;
  #channel: Channel | undefined;
  /** Whether the state is complete and frames arrive. */
  #live = false;

  constructor(
    connection: Connection,
    http: Http,
    convId: string,
    sink: ConversationSink,
    signal: AbortSignal,
  ) {
    this.#connection = connection;
    this.#http = http;
    this.#convId = convId;
    this.#sink = sink;
    this.#signal = signal;
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
    const first = this.#sink.position() === undefined;
    this.#sink.frame(frame);
    if (!this.#live && this.#sink.position() !== undefined) {
      this.#live = true;
      this.#sink.health(true);
    }
    if (first && frame.type === "snapshot" && ((frame as SnapshotJson).messages?.length ?? 0) >= REPLAY)
      void this.#readAll();
  }

  /** The snapshot may be cut: reads the whole conversation, then joins again from there. */
  async #readAll(): Promise<void> {
    const signal = this.#signal;
    try {
      const path = `/chat/${encodeURIComponent(this.#convId)}`;
      const {
        messages = [],
        run = null,
        cursor = "",
      } = (await this.#http.request("GET", path, { signal })).body as ConversationStateJson;
      if (signal.aborted) return;
      this.#leave();
      this.#sink.restore({ messages, run, cursor, seq: "0" });
      this.join();
    } catch (error) {
      // The last messages are live; the error explains the missing older ones.
      if (signal.aborted) return;
      if (!(error instanceof KhalaError)) throw error;
      this.#sink.health(true, error);
    }
  }

  #leave(): void {
    this.#channel?.leave();
    this.#channel = undefined;
  }
}
