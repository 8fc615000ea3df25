import type { Server } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";

/** The connections of a server, counted by address. */
export interface CountedConnections {
  /** The connection has authenticated: it counts by subject from now on. */
  release(connection: Duplex): void;
}

/**
 * Closes connections beyond a number per address, before anything of them is read; 0 is no limit. Without it one machine could hold every
 * file descriptor without a token.
 */
export function limitConnections(server: Server, limit: number, onRefused: () => void): CountedConnections {
  const open = new Map<string, number>();
  const counted = new WeakMap<Duplex, string>();

  function release(connection: Duplex): void {
    const address = counted.get(connection);
    if (address === undefined) return;
    counted.delete(connection);
    const left = open.get(address)! - 1;
    if (left > 0) open.set(address, left);
    else open.delete(address);
  }

  function accept(socket: Socket): void {
    const address = socket.remoteAddress ?? "";
    const now = (open.get(address) ?? 0) + 1;
    if (now > limit) {
      onRefused();
      socket.destroy();
      return;
    }
    open.set(address, now);
    counted.set(socket, address);
    socket.once("close", () => release(socket));
  }

  // Before the server's own listener, which begins to read.
  if (limit > 0) server.prependListener("connection", accept);
  return { release };
}
