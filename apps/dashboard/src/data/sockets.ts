import type { KhalaClient } from "@khala/client";
import { complete, completeAll } from "./wire.ts";

type SocketsAnswer = Awaited<ReturnType<KhalaClient["ops"]["sockets"]>>;

const SOCKET = {
  id: "",
  subject: "",
  org: "",
  kind: "",
  connected_at: "",
  remote: "",
  queued_bytes: 0,
  sent: 0,
  state: "ok",
};
const CLOSE = { at: "", subject: "", code: 0, reason: "", kind: "" };

/** A channel of a socket, and the position of each of its topics. */
export interface Channel {
  readonly name: string;
  readonly cursors: readonly { readonly topic: string; readonly watermark: string }[];
}

/** An open socket. */
export type Socket = Readonly<typeof SOCKET> & { readonly channels: readonly Channel[] };

/** A closed socket. */
export type Close = Readonly<typeof CLOSE> & { readonly key: string };

/** Reads the open sockets. */
export function readSockets({ sockets = [] }: SocketsAnswer): readonly Socket[] {
  return sockets.map((wire) => ({
    ...complete(SOCKET, wire),
    channels: (wire.channels ?? []).map(({ topic: name = "", cursors = {} }) => ({
      name,
      cursors: Object.entries(cursors).map(([topic, { watermark = "0" }]) => ({ topic, watermark })),
    })),
  }));
}

/** Reads the sockets that were closed last. */
export function readCloses({ closes = [] }: SocketsAnswer): readonly Close[] {
  // Two closes may have the same time and subject: the position from the end tells them apart, and does not change.
  return completeAll(CLOSE, closes).map((close, index) => ({
    ...close,
    key: `${closes.length - index} ${close.at} ${close.subject}`,
  }));
}
