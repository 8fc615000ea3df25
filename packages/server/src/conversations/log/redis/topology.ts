import type { Context } from "../../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../../kit/service.ts";
import { RedisConnection, type RedisSettings } from "./connection.ts";
import { redisError, unavailable } from "./errors.ts";
import { RedisSubscriber, type SubscriberListener } from "./subscriber.ts";
import { formatRedisAddress, parseRedisAddress, type RedisAddress } from "./url.ts";

/** A node with its two connections. */
export interface RedisNode {
  readonly address: RedisAddress;
  readonly commands: RedisConnection;
  readonly subscriber: RedisSubscriber;
  /** It may have dropped subscriptions, because slots moved. */
  mayHaveDroppedChannels: boolean;
}

/** The state of a node's connections. */
export interface RedisNodeState {
  readonly address: string;
  readonly commands: boolean;
  readonly subscriber: boolean;
  readonly problem?: string;
}

export interface RedisTopologyOptions extends RedisSettings {
  readonly cluster: boolean;
  /** Uses sharded pub/sub. */
  readonly sharded: boolean;
}

export interface TopologyListener extends Omit<SubscriberListener, "moved"> {
  /** The owners of slots may have changed. Called again if it fails. */
  changed(): Promise<void>;
}

const CHECK_MS = 1_000;
const CHECKS_PER_REFRESH = 30;

/** The nodes of a log: one server, or the masters of a cluster with their slots. */
export class RedisTopology {
  readonly #context: Context;
  readonly #options: RedisTopologyOptions;
  readonly #listener: TopologyListener;
  readonly #nodes = new Map<string, RedisNode>();
  readonly #owners = new Array<RedisNode | undefined>(SLOTS);
  readonly #wake = new Wake();
  #follower: Service | undefined;
  #stale = false;
  #checks = 0;

  constructor(context: Context, options: RedisTopologyOptions, listener: TopologyListener) {
    this.#context = context;
    this.#options = options;
    this.#listener = listener;
  }

  /** Discovers the nodes and connects to them. */
  async start(): Promise<void> {
    const { cluster, target } = this.#options;
    if (cluster) await this.#refresh();
    else this.#owners.fill(this.#node(target.addresses[0]!));
    await Promise.all(
      this.nodes.flatMap(({ commands, subscriber }) => [commands.settled(), subscriber.settled()]),
    );
    if (!cluster) return;
    this.#follower = runLoop(this.#context, "redis cluster", {
      step: () => this.#check(),
      wake: this.#wake,
      idleMs: CHECK_MS,
    });
  }

  async stop(): Promise<void> {
    for (const node of this.nodes) close(node);
    await this.#follower?.stop();
  }

  get nodes(): RedisNode[] {
    return [...this.#nodes.values()];
  }

  state(): RedisNodeState[] {
    return this.nodes.map(({ commands, subscriber }) => ({
      address: commands.name,
      commands: commands.ready,
      subscriber: subscriber.ready,
      ...(commands.problem && { problem: commands.problem }),
    }));
  }

  ownerOf(stream: string): RedisNode {
    // A single server owns every slot: no need to hash the name.
    const owner = this.#owners[this.#options.cluster ? slotOf(stream) : 0];
    if (owner) return owner;
    this.refreshSoon();
    throw unavailable("The Redis cluster does not serve every slot.");
  }

  /** The node of a redirection; without a host it is the host that answered. */
  nodeAt(address: string, by: RedisNode): RedisNode {
    return this.#node(parseRedisAddress(address.startsWith(":") ? by.address.host + address : address));
  }

  /** A redirection named the new owner of a stream's slot. */
  moved(stream: string, node: RedisNode): void {
    this.#owners[slotOf(stream)] = node;
    this.refreshSoon();
  }

  /** Schedules a refresh of the slots' owners. */
  refreshSoon(): void {
    this.#stale = true;
    this.#wake.wake();
  }

  #node(address: RedisAddress): RedisNode {
    const name = formatRedisAddress(address);
    const known = this.#nodes.get(name);
    if (known) return known;
    const [context, options, listener] = [this.#context, this.#options, this.#listener];
    const commands = new RedisConnection(context, options, address);
    const subscribing = new RedisConnection(context, options, address);
    const subscriber = new RedisSubscriber(context, subscribing, options.sharded, {
      message: (channel, payload) => listener.message(channel, payload),
      missed: (channels) => listener.missed(channels),
      moved: () => {
        node.mayHaveDroppedChannels = true;
        this.refreshSoon();
      },
    });
    const node: RedisNode = { address, commands, subscriber, mayHaveDroppedChannels: false };
    commands.onDisconnect(() => this.refreshSoon());
    this.#nodes.set(name, node);
    return node;
  }

  /** Refreshes after a redirection or a lost node, and periodically. */
  async #check(): Promise<boolean> {
    const down = this.nodes.some(({ commands }) => !commands.ready);
    if (!this.#stale && !down && ++this.#checks < CHECKS_PER_REFRESH) return false;
    this.#checks = 0;
    this.#stale = false;
    try {
      await this.#refresh();
      await this.#listener.changed();
    } catch (error) {
      this.#stale = true;
      throw error;
    }
    return false;
  }

  async #refresh(): Promise<void> {
    const ranges = await this.#fetchSlots();
    this.#owners.fill(undefined);
    for (const { first, last, owner } of ranges) this.#owners.fill(this.#node(owner), first, last + 1);
    const needed = new Set(this.#owners);
    for (const [name, node] of this.#nodes) {
      if (needed.has(node)) continue;
      this.#nodes.delete(name);
      close(node);
    }
  }

  async #fetchSlots(): Promise<SlotRange[]> {
    let failure: unknown;
    const ask = async (connection: RedisConnection, address: RedisAddress) => {
      try {
        const ranges = parseSlots(await connection.call((redis) => redis.cluster("SLOTS")), address);
        if (ranges.length > 0) return ranges;
        failure = unavailable(`Redis (${connection.name}) reports no slots: it has not joined its cluster.`);
      } catch (error) {
        failure = redisError(error as Error, connection.name);
      }
      return undefined;
    };
    // Newest first: a node from a redirection knows its slots.
    for (const { address, commands } of this.nodes.reverse()) {
      const ranges = commands.ready && (await ask(commands, address));
      if (ranges) return ranges;
    }
    for (const address of this.#options.target.addresses) {
      const seed = new RedisConnection(this.#context, this.#options, address);
      const ranges = await ask(seed, address).finally(() => seed.close());
      if (ranges) return ranges;
    }
    throw failure;
  }
}

function close(node: RedisNode): void {
  node.commands.close();
  node.subscriber.stop();
}

/** The number of slots of a Redis cluster. */
const SLOTS = 16_384;

const TABLE = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? (crc << 1) ^ 0x1021 : crc << 1;
  return crc;
});

/** The slot of a key without braces: CRC16 (XMODEM), per the cluster specification. */
export function slotOf(key: string): number {
  let crc = 0;
  for (const byte of Buffer.from(key)) crc = ((crc << 8) ^ TABLE[((crc >> 8) ^ byte) & 0xff]!) & 0xffff;
  return crc % SLOTS;
}

/** A range of slots and its owner. */
interface SlotRange {
  readonly first: number;
  readonly last: number;
  readonly owner: RedisAddress;
}

/** Parses the reply of CLUSTER SLOTS. A node without a host is the one that was asked. */
function parseSlots(answer: unknown, asked: RedisAddress): SlotRange[] {
  return (answer as [number, number, [string | null, number]][]).map(([first, last, [host, port]]) => ({
    first,
    last,
    owner: { host: host || asked.host, port },
  }));
}
