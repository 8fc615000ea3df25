import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { listenAnywhere, type Target } from "./tcp_proxy.ts";

/** A message of a protocol. */
export interface WireMessage {
  readonly bytes: Buffer;
  /** The sender, where the protocol names it. */
  readonly client?: string;
  /** The kind of request, if tests wait for this kind. */
  readonly name?: string | undefined;
  /** Equal for a request and the message that ends its answer. */
  readonly id?: number;
  /** Equal when the request is sent again, if that is not all of it. */
  readonly content?: Buffer;
}

/** Cuts the bytes of one connection into messages. */
export interface Wire {
  requests(chunk: Buffer): WireMessage[];
  answers(chunk: Buffer): WireMessage[];
}

/** A moment in the life of a request. */
export interface Step {
  /** The sender of the request; any sender where the protocol names none. */
  readonly client?: string;
  readonly name: string;
  /** A text that the request contains. */
  readonly says?: string;
  /** Before the server gets the request, or after the server's answer and before the client gets it. */
  readonly moment: "before" | "after";
  /** The connections that stop from then on, both ways: all of the client's, or this one alone. */
  readonly holds: "client" | "connection";
}

/** A step that is awaited once. A client whose connection breaks there repeats the request on another: that is the same step. */
export interface Trap {
  readonly caught: boolean;
  /** The server's answer, as soon as it is there. */
  readonly answer: Buffer | undefined;
  /** Resumes all that this step stopped. */
  release(): void;
}

/** A proxy that understands what it forwards, and stops at an exact message. */
export interface StepProxy extends AsyncDisposable {
  readonly port: number;
  /** The same URL, through the proxy. */
  through(url: string): string;
  /** Sends new connections to another address. */
  target: Target | undefined;
  /** Waits for the next such request. */
  trap(step: Step): Trap;
  /** Breaks every open connection; new ones are still accepted. */
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
  const { client = connection.client, says = "" } = step;
  return name === step.name && client === connection.client && bytes.includes(says);
}

interface Traps {
  held(connection: Connection): boolean;
  /** Removes the trap for such a request. */
  take(connection: Connection, message: WireMessage): SetTrap | undefined;
  spring(trap: SetTrap, connection: Connection): void;
  /** Waits for the same request again. */
  putBack(trap: SetTrap): void;
}

/** One connection through the proxy. Bytes held back are dropped when either side closes, as on a broken connection. */
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
      // When either side breaks, the other side is closed; the reason does not matter to a proxy.
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

  /** Forwards every message that need not wait. */
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

/** Joins pieces and cuts them into messages. `sizeOf` returns the next one's length once enough bytes are there. */
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
