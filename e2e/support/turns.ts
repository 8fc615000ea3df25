import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";

/** How many may run at a time when this part of the machine is missing: never none, and so many that none of it lies idle. */
export function room(most: number, stolen: number): number {
  return Math.max(1, Math.ceil(most * (1 - stolen)));
}

/** Where test files queue, one connection each: a byte says that it is their turn, which lasts until they hang up. */
export interface Turns extends AsyncDisposable {
  readonly port: number;
  /** To be called when there may be more room. */
  look(): void;
}

/** Opens the queue; `places` says how many may have a turn now. Who has one keeps it when there is less room. */
export async function openTurns(places: () => number): Promise<Turns> {
  const waiting = new Set<Socket>();
  const running = new Set<Socket>();
  const look = () => {
    for (const socket of waiting) {
      if (running.size >= places()) return;
      waiting.delete(socket);
      running.add(socket);
      socket.write("\n");
    }
  };
  const server = createServer((socket) => {
    waiting.add(socket);
    // A file whose process was killed hangs up as well.
    socket.on("error", () => {});
    socket.on("close", () => {
      waiting.delete(socket);
      running.delete(socket);
      look();
    });
    socket.resume();
    look();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    look,
    async [Symbol.asyncDispose]() {
      server.close();
      for (const socket of [...waiting, ...running]) socket.destroy();
      await once(server, "close");
    },
  };
}
