import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { listenAnywhere, type Target } from "./tcp_proxy.ts";

/** A message of a protocol, as it flows. */
export interface WireMessage {
  readonly bytes: Buffer;
  /** Who sends it, where the protocol says so. */
  readonly client?: string;
  /** What it asks for, if it is something that a test may wait for. */
  readonly name?: string | undefined;
  /** The same for a request and the message that ends its answer. */
  readonly id?: number;
  /** What is the same when it is sent again, if that is not all of it. */
  readonly content?: Buffer;
}

/** Cuts what flows over one connection into messages. */
export interface Wire {
  requests(chunk: Buffer): WireMessage[];
  answers(chunk: Buffer): WireMessage[];
}

/** A moment in the life of a request. */
export interface Step {
  /** Whose request; anybody's where the protocol does not tell. */
  readonly client?: string;
  readonly name: string;
  /** A text that is somewhere in it. */
  readonly says?: string;
  /** Before the server gets it, or after the server has answered and before the client knows. */
  readonly moment: "before" | "after";
  /** What stands still from then on, both ways: all that the client has open, or this connection alone. */
  readonly holds: "client" | "connection";
  /** Only on the connection on which this one was caught. */
  readonly on?: Trap;
}

/** A step that is waited for, once. A client whose line breaks there asks again on another: that is the same step. */
export interface Trap {
  readonly caught: boolean;
  /** What the server answered, as soon as it did. */
  readonly answer: Buffer | undefined;
  /** Lets everything flow on from where it stood. */
  release(): void;
}

/** A proxy that knows what it forwards, and stops exactly there. */
export interface StepProxy extends AsyncDisposable {
  readonly port: number;
  /** The same URL, through the proxy. */
  through(url: string): string;
  /** Where connections go that are made from now on. */
  target: Target | undefined;
  /** Waits for the next such request. */
  trap(step: Step): Trap;
  /** Breaks every open connection at once; new ones are still taken. */
  cut(): void;
}

class SetTrap implements Trap {
  readonly step: Step;
  caught = false;
  released = false;
  request: Buffer | undefined;
  answer: Buffer | undefined;
  connection: Connection | undefined;
  readonly release: () => void;

  constructor(step: Step, release: (trap: SetTrap) => void) {
    this.step = step;
    this.release = () => release(this);
  }

  holds(connection: Connection): boolean {
    if (this.connection === undefined || this.released) return false;
    if (this.step.holds === "connection") return connection === this.connection;
    return connection.client === this.connection.client;
  }
}

/** Starts a proxy on a free port. */
export async function startStepProxy(wire: () => Wire, first?: Target): Promise<StepProxy> {
  const connections = new Set<Connection>();
  const waiting = new Set<SetTrap>();
  const sprung = new Set<SetTrap>();
  const traps: Traps = {
    held: (connection) => sprung.values().some((trap) => trap.holds(connection)),
    take(connection, message) {
      const { content = message.bytes } = message;
      const trap = waiting
        .values()
        .find(({ step, request = content }) => isStep(step, connection, message) && request.equals(content));
      if (!trap) return undefined;
      waiting.delete(trap);
      trap.request = content;
      return trap;
    },
    putBack: (trap) => void waiting.add(trap),
    spring(trap, connection) {
      trap.connection = connection;
      trap.caught = true;
      sprung.add(trap);
    },
  };
  const release = (trap: SetTrap) => {
    trap.released = true;
    for (const connection of connections) connection.flow();
  };
  const cut = () => {
    for (const { near } of connections) near.resetAndDestroy();
  };

  let target = first;
  const server = createServer((near) => {
    if (!target) return near.resetAndDestroy();
    const connection = new Connection(near, connect(target.port, target.host), wire(), traps);
    connections.add(connection);
    near.once("close", () => connections.delete(connection));
  });
  return {
    ...(await listenAnywhere(server)),
    get target() {
      return target;
    },
    set target(next) {
      target = next;
    },
    trap(step) {
      const trap = new SetTrap(step, release);
      waiting.add(trap);
      return trap;
    },
    cut,
    async [Symbol.asyncDispose]() {
      server.close();
      cut();
      await once(server, "close");
    },
  };
}

function isStep(step: Step, connection: Connection, { name, bytes }: WireMessage): boolean {
  const { client = connection.client, says = "", on } = step;
  if (name !== step.name || client !== connection.client || !bytes.includes(says)) return false;
  return on === undefined || (on instanceof SetTrap && on.connection === connection);
}

interface Traps {
  held(connection: Connection): boolean;
  /** The trap for such a request, which waits no longer. */
  take(connection: Connection, message: WireMessage): SetTrap | undefined;
  spring(trap: SetTrap, connection: Connection): void;
  /** Waits for the same request again. */
  putBack(trap: SetTrap): void;
}

/** One connection through the proxy. What stands still is dropped when either side closes, as on a line that is cut. */
class Connection {
  client = "";
  readonly near: Socket;
  readonly #far: Socket;
  readonly #traps: Traps;
  readonly #up: WireMessage[] = [];
  readonly #down: WireMessage[] = [];
  readonly #awaited = new Map<number, SetTrap>();

  constructor(near: Socket, far: Socket, wire: Wire, traps: Traps) {
    this.near = near;
    this.#far = far;
    this.#traps = traps;
    for (const socket of [near, far]) {
      socket.setNoDelay(true);
      // Whichever side breaks, the other learns it; why does not matter to a proxy.
      socket.on("error", () => {});
      socket.on("close", () => {
        near.destroy();
        far.destroy();
        for (const trap of this.#awaited.values()) traps.putBack(trap);
        this.#awaited.clear();
      });
    }
    near.on("data", (chunk) => {
      this.#up.push(...wire.requests(chunk));
      this.flow();
    });
    far.on("data", (chunk) => {
      this.#down.push(...wire.answers(chunk));
      this.flow();
    });
  }

  /** Forwards all that need not wait. */
  flow(): void {
    while (this.#up[0] && this.#mayAsk(this.#up[0])) this.#far.write(this.#up.shift()!.bytes);
    while (this.#down[0] && this.#mayHear(this.#down[0])) this.near.write(this.#down.shift()!.bytes);
  }

  #mayAsk(message: WireMessage): boolean {
    this.client = message.client ?? this.client;
    if (this.#traps.held(this)) return false;
    const trap = this.#traps.take(this, message);
    if (!trap) return true;
    if (message.id !== undefined) this.#awaited.set(message.id, trap);
    if (trap.step.moment === "after" || trap.released) return true;
    this.#traps.spring(trap, this);
    return false;
  }

  #mayHear({ bytes, id }: WireMessage): boolean {
    if (this.#traps.held(this)) return false;
    const trap = id === undefined ? undefined : this.#awaited.get(id);
    if (!trap) return true;
    this.#awaited.delete(id!);
    trap.answer = bytes;
    if (trap.step.moment === "before" || trap.released) return true;
    this.#traps.spring(trap, this);
    return false;
  }
}

/** Puts pieces together and cuts them into messages. `sizeOf` tells how long the next is, once enough of it is there. */
export function cutter(
  sizeOf: (rest: Buffer, cut: number) => number | undefined,
): (chunk: Buffer) => Buffer[] {
  let rest: Buffer = Buffer.alloc(0);
  let cut = 0;
  return (chunk) => {
    rest = rest.length > 0 ? Buffer.concat([rest, chunk]) : chunk;
    const messages: Buffer[] = [];
    for (;;) {
      const size = sizeOf(rest, cut);
      if (size === undefined || size > rest.length) return messages;
      messages.push(rest.subarray(0, size));
      rest = rest.subarray(size);
      cut++;
    }
  };
}
