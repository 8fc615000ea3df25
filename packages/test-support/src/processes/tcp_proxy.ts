import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

/** Where a proxy sends connections. */
export interface Target {
  readonly host: string;
  readonly port: number;
}

/** A TCP proxy between two programs, which a test uses to break their connection. */
export interface TcpProxy extends AsyncDisposable {
  readonly port: number;
  /** The same URL, through the proxy. */
  through(url: string): string;
  /** Holds bytes back, both ways or only the answers; connections stay open, as behind a dead link. */
  pause(what?: "all" | "answers"): void;
  /** Undoes pause and refuse, and forwards the bytes held back. */
  resume(): void;
  /** Breaks every open connection; new ones are still accepted. */
  cut(): void;
  /** Breaks every open connection, and each new one. */
  refuse(): void;
  /** Sends new connections elsewhere; open ones stay where they are. */
  switchTo(target: Target): void;
  /** The number of open connections. */
  readonly connections: number;
}

/** Lets a proxy listen on a free port, and returns its address. */
export async function listenAnywhere(server: Server): Promise<Pick<TcpProxy, "port" | "through">> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    port,
    through(url) {
      const other = new URL(url);
      other.hostname = "127.0.0.1";
      other.port = String(port);
      return other.toString();
    },
  };
}

/** Starts a proxy on a free port. */
export async function startTcpProxy(first: Target): Promise<TcpProxy> {
  const sockets = new Map<Socket, Socket>();
  let refusing = false;
  let held: "nothing" | "answers" | "all" = "nothing";
  let target = first;

  const flow = (from: Socket, to: Socket, open: boolean) => {
    from.unpipe(to);
    if (open) from.pipe(to);
    else from.pause();
  };
  const flows = (near: Socket, far: Socket) => {
    flow(near, far, held !== "all");
    flow(far, near, held === "nothing");
  };
  const hold = (what: typeof held) => {
    held = what;
    for (const [near, far] of sockets) flows(near, far);
  };
  const cut = () => {
    for (const pair of sockets) for (const socket of pair) socket.resetAndDestroy();
  };

  const server = createServer((near) => {
    if (refusing) return near.resetAndDestroy();
    const far = connect(target.port, target.host);
    sockets.set(near, far);
    for (const socket of [near, far]) {
      socket.setNoDelay(true);
      // When either side breaks, the other side is closed; the reason does not matter to a proxy.
      socket.on("error", () => {});
      socket.on("close", () => {
        sockets.delete(near);
        near.destroy();
        far.destroy();
      });
    }
    flows(near, far);
  });
  return {
    ...(await listenAnywhere(server)),
    pause: (what = "all") => hold(what),
    resume() {
      refusing = false;
      hold("nothing");
    },
    cut,
    refuse() {
      refusing = true;
      cut();
    },
    switchTo(next) {
      target = next;
    },
    get connections() {
      return sockets.size;
    },
    async [Symbol.asyncDispose]() {
      server.close();
      cut();
      await once(server, "close");
    },
  };
}
