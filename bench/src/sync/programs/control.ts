import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";

/** Listens for one load generator, which sends a byte for every broadcast that it wants. */
export async function onEachByte(broadcast: () => void): Promise<{ port: number; server: Server }> {
  const server = createServer((socket) => {
    socket.on("data", (bytes) => {
      for (let i = 0; i < bytes.length; i++) broadcast();
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { port: (server.address() as { port: number }).port, server };
}

/** The load generator's end: each call asks for one broadcast, and those of one turn go together. */
export async function byteSender(port: number): Promise<() => void> {
  const socket: Socket = connect({ port, host: "127.0.0.1", noDelay: true });
  await once(socket, "connect");
  let asked = 0;
  return () => {
    if (asked++ > 0) return;
    queueMicrotask(() => {
      socket.write(Buffer.alloc(asked));
      asked = 0;
    });
  };
}
