import { RawSocket } from "../kit/raw_socket.ts";

/** Whom a conversation's socket tells. */
export interface Follower {
  /** An event frame. */
  event(frame: Buffer): void;
  lost(reason: Error): void;
}

const EVENT = '{"type":"ev';

/** Opens `/ws` from now on; resolves with the hello. */
export function conversationClient(
  port: number,
  token: string,
  conv: string,
  follower: Follower,
): Promise<RawSocket> {
  const { promise, resolve, reject } = Promise.withResolvers<RawSocket>();
  const lost = (reason: Error) => {
    reject(reason);
    follower.lost(reason);
  };
  const socket = new RawSocket(port, `/ws?conv_id=${conv}&token=${token}`, {
    open() {},
    closed: (reason) => lost(new Error(reason)),
    frame(data) {
      if (isEvent(data)) return follower.event(data);
      const { type, ...rest } = JSON.parse(data.toString());
      if (type === "hello") resolve(socket);
      else if (type !== "heartbeat") lost(new Error(`unexpected ${type}: ${JSON.stringify(rest)}`));
    },
  });
  return promise;
}

/** Whether a frame brings an event, by a look at one letter: others are heartbeats, hellos, errors. */
export function isEvent(frame: Buffer): boolean {
  return frame[EVENT.length - 1] === EVENT.charCodeAt(EVENT.length - 1);
}

/** The sequence of an event frame. */
export function sequenceOf(frame: Buffer): number {
  const start = '{"type":"event","seq":"'.length;
  return Number(frame.toString("latin1", start, frame.indexOf('"', start)));
}
