import type { Context } from "../../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../../kit/service.ts";
import { RedisConnection, type RedisSettings } from "./connection.ts";
import { redisError, unavailable } from "./errors.ts";
import { parseSlots, SLOTS, type SlotRange, slotOf } from "./slots.ts";
import { RedisSubscriber, type SubscriberListener } from "./subscriber.ts";
import { formatRedisAddress, parseRedisAddress, type RedisAddress } from "./url.ts";

/** A server with its two connections. */
export interface RedisNode {
  readonly address: RedisAddress;
  readonly commands: RedisConnection;
  readonly subscriber: RedisSubscriber;
  /** It may have dropped channels, because slots moved. */
  doubtful: boolean;
}

/** How a server's connections are. */
export interface RedisNodeState {
  readonly address: string;
  readonly commands: boolean;
  readonly subscriber: boolean;
  readonly problem?: string;
}

export interface RedisTopologyOptions extends RedisSettings {
  readonly cluster: boolean;
  /** Channels belong to slots. */
  readonly sharded: boolean;
}

export interface TopologyListener extends Omit<SubscriberListener, "moved"> {
  /** Who has what may have changed. If this fails it is called again. */
  changed(): Promise<void>;
}

const LOOK_MS = 1_000;
const LOOKS_PER_REFRESH = 30;

/** The servers of a log, one or the masters of a cluster, and which of them has a stream. */
export class RedisTopology {
  readonly #context: Context;
  readonly #options: RedisTopologyOptions;
  readonly #listener: TopologyListener;
  readonly #nodes = new Map<string, RedisNode>();
  readonly #owners = new Array<RedisNode | undefined>(SLOTS);
  readonly #wake = new Wake();
  #follower: Service | undefined;
  #stale = false;
  #looks = 0;

  constructor(context: Context, options: RedisTopologyOptions, listener: TopologyListener) {
    this.#context = context;
    this.#options = options;
    this.#listener = listener;
  }

  /** Finds the servers, and connects to them. */
  async start(): Promise<void> {
    const { cluster, target } = this.#options;
    if (cluster) await this.#refresh();
    else this.#owners.fill(this.#node(target.addresses[0]!));
    await Promise.all(
      this.nodes.flatMap(({ commands, subscriber }) => [commands.tried(), subscriber.tried()]),
    );
    if (!cluster) return;
    this.#follower = runLoop(this.#context, "redis cluster", {
      step: () => this.#look(),
      wake: this.#wake,
      idleMs: LOOK_MS,
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
    // A single server has every slot, and which one it is need not be reckoned.
    const owner = this.#owners[this.#options.cluster ? slotOf(stream) : 0];
    if (owner) return owner;
    this.refreshSoon();
    throw unavailable("The Redis cluster does not serve every slot.");
  }

  /** The node that a redirection names; one without a host means the host that answered. */
  named(address: string, by: RedisNode): RedisNode {
    return this.#node(parseRedisAddress(address.startsWith(":") ? by.address.host + address : address));
  }

  /** A server said who has a stream now. */
  moved(stream: string, node: RedisNode): void {
    this.#owners[slotOf(stream)] = node;
    this.refreshSoon();
  }

  /** There is a reason to ask anew who has what. */
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
    const heard = new RedisConnection(context, options, address);
    const subscriber = new RedisSubscriber(context, heard, options.sharded, {
      message: (channel, payload) => listener.message(channel, payload),
      missed: (channels) => listener.missed(channels),
      moved: () => {
        node.doubtful = true;
        this.refreshSoon();
      },
    });
    const node: RedisNode = { address, commands, subscriber, doubtful: false };
    commands.onLost(() => this.refreshSoon());
    this.#nodes.set(name, node);
    return node;
  }

  /** Asks when there is a reason, and now and then without one. */
  async #look(): Promise<boolean> {
    const down = this.nodes.some(({ commands }) => !commands.ready);
    if (!this.#stale && !down && ++this.#looks < LOOKS_PER_REFRESH) return false;
    this.#looks = 0;
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
    const ranges = await this.#askForSlots();
    this.#owners.fill(undefined);
    for (const { first, last, owner } of ranges) this.#owners.fill(this.#node(owner), first, last + 1);
    const needed = new Set(this.#owners);
    for (const [name, node] of this.#nodes) {
      if (needed.has(node)) continue;
      this.#nodes.delete(name);
      close(node);
    }
  }

  async #askForSlots(): Promise<SlotRange[]> {
    let problem: unknown;
    const ask = async (connection: RedisConnection, address: RedisAddress) => {
      try {
        const ranges = parseSlots(await connection.call((redis) => redis.cluster("SLOTS")), address);
        if (ranges.length > 0) return ranges;
        problem = unavailable(`Redis (${connection.name}) knows of no slots: it has not joined its cluster.`);
      } catch (error) {
        problem = redisError(error as Error, connection.name);
      }
      return undefined;
    };
    // The newest first: it was named by a redirection, and knows what it has.
    for (const { address, commands } of this.nodes.reverse()) {
      const ranges = commands.ready && (await ask(commands, address));
      if (ranges) return ranges;
    }
    for (const address of this.#options.target.addresses) {
      const seed = new RedisConnection(this.#context, this.#options, address);
      const ranges = await ask(seed, address).finally(() => seed.close());
      if (ranges) return ranges;
    }
    throw problem;
  }
}

function close(node: RedisNode): void {
  node.commands.close();
  node.subscriber.stop();
}
