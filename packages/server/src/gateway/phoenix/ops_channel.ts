import { fromJson, toBinary } from "@bufbuild/protobuf";
import { OPS_CHANNEL, phoenix } from "@khala/contracts";
import { type FrameJson, FrameSchema } from "@khala/contracts/ops/v1";
import { AuthSchema } from "@khala/contracts/sync/v1";
import { requireScope } from "../../access/access.ts";
import { type WireFrame, wireFrame } from "../../kit/wire_frame.ts";
import type { Encoding } from "../../sync/read/update_codec.ts";
import { readMessage } from "../http/read_request.ts";
import type { Overview, Snapshot } from "../ops/overview.ts";
import {
  type Channel,
  type ChannelDefinition,
  type ChannelSocket,
  encodingOf,
  endUnlessAllowed,
  ok,
  type Reply,
} from "./channel.ts";

/** The channel `ops:v1`: a snapshot of the server, again and again, encoded once for all who watch. */
export function opsChannel(overview: Overview): ChannelDefinition {
  const encoded = new WeakMap<Snapshot, Map<Encoding, WireFrame>>();

  function frameOf(snapshot: Snapshot, encoding: Encoding): WireFrame {
    const known = encoded.get(snapshot) ?? new Map<Encoding, WireFrame>();
    encoded.set(snapshot, known);
    const frame = known.get(encoding) ?? wireFrame(encode({ overview: snapshot }, encoding));
    known.set(encoding, frame);
    return frame;
  }

  return {
    topic: OPS_CHANNEL,
    join: "server.observe",
    events: {},
    open(socket, params) {
      const encoding = encodingOf(params);
      return new OpsChannel(socket, encoding, (show) =>
        overview.watch((snapshot) => show(frameOf(snapshot, encoding))),
      );
    },
  };
}

class OpsChannel implements Channel {
  readonly #socket: ChannelSocket;
  readonly #encoding: Encoding;
  readonly #leave: () => void;

  constructor(
    socket: ChannelSocket,
    encoding: Encoding,
    watch: (show: (frame: WireFrame) => void) => () => void,
  ) {
    this.#socket = socket;
    this.#encoding = encoding;
    this.#leave = watch((frame) => void socket.outbox.offer(frame));
  }

  async receive(_event: string, payload: unknown): Promise<Reply> {
    const { expiresAt } = await this.#socket.authenticate(readMessage(AuthSchema, payload).token);
    return ok(JSON.stringify({ expires_at: new Date(expiresAt).toISOString() }));
  }

  viewerChanged(): void {
    endUnlessAllowed(this.#socket, () => requireScope(this.#socket.viewer(), "server.observe"));
  }

  // A snapshot that did not fit is stale by now: the next one replaces it.
  onWritable(): void {}

  // Snapshots are one.
  heartbeat(): void {}

  sendError({ code, message }: { code: string; message: string }): void {
    this.#socket.outbox.send(encode({ error: { code, message } }, this.#encoding));
  }

  close(): void {
    this.#leave();
  }
}

function encode(frame: FrameJson, encoding: Encoding): string | Uint8Array {
  return encoding === "proto"
    ? phoenix.broadcastBinary(OPS_CHANNEL, "frame", toBinary(FrameSchema, fromJson(FrameSchema, frame)))
    : phoenix.pushText(null, OPS_CHANNEL, "frame", JSON.stringify(frame));
}
