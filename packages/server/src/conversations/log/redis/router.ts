import { KhalaError } from "@khala/contracts";
import { sleep } from "../../../kit/clock.ts";
import type { Context } from "../../../kit/context.ts";
import { failureOf, redisError } from "./errors.ts";
import { keysOf, type RedisScript } from "./scripts.ts";
import type { SubscriberListener } from "./subscriber.ts";
import {
  type RedisNode,
  type RedisNodeState,
  RedisTopology,
  type RedisTopologyOptions,
  slotOf,
} from "./topology.ts";

const MAX_ATTEMPTS = 6;
const RETRIES_AFTER_DISCONNECT = 1;
const BATCH_SIZE = 500;

/** Routes scripts and subscriptions to the node that owns the slot, and follows redirections. */
export class RedisRouter {
  readonly #context: Context;
  readonly #listener: Omit<SubscriberListener, "moved">;
  readonly #topology: RedisTopology;
  /** The node on which each channel is subscribed. */
  readonly #subscribedOn = new Map<string, RedisNode>();
  readonly #stopping = new AbortController();
  readonly #cluster: boolean;

  constructor(context: Context, options: RedisTopologyOptions, listener: Omit<SubscriberListener, "moved">) {
    this.#context = context;
    this.#cluster = options.cluster;
    this.#listener = listener;
    this.#topology = new RedisTopology(context, options, { ...listener, changed: () => this.#resubscribe() });
  }

  async start(): Promise<void> {
    await this.#topology.start();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#topology.stop();
  }

  state(): RedisNodeState[] {
    return this.#topology.state();
  }

  /** Groups streams that one script may access, as indexes: by slot in a cluster, all together otherwise. */
  groupBySlot(streams: readonly string[]): number[][] {
    if (!this.#cluster) return [[...streams.keys()]];
    const bySlot = new Map<number, number[]>();
    for (const [index, stream] of streams.entries()) {
      const slot = slotOf(stream);
      const indexes = bySlot.get(slot);
      if (indexes) indexes.push(index);
      else bySlot.set(slot, [index]);
    }
    return [...bySlot.values()];
  }

  /**
   * Runs a script on the stream's node. Retries what was not executed; what may have been executed only if `idempotent`.
   * The keys are the stream's own, or those of its group from `groupBySlot`.
   */
  async run(
    stream: string,
    script: RedisScript,
    args: readonly string[],
    idempotent: boolean,
    keys: readonly string[] = keysOf(stream),
  ): Promise<unknown> {
    let ask: RedisNode | undefined;
    let losses = idempotent ? RETRIES_AFTER_DISCONNECT : 0;
    for (let attempt = 1; ; attempt++) {
      const node = ask ?? this.#topology.ownerOf(stream);
      const { generation } = node.commands;
      try {
        return await node.commands.script(script, keys, args, ask !== undefined);
      } catch (error) {
        const failure = this.#retryableFailure(error as Error, node, attempt);
        if (failure.kind === "lost" && losses-- === 0) throw redisError(error as Error, node.commands.name);
        ask = failure.kind === "ask" ? this.#topology.nodeAt(failure.address, node) : undefined;
        if (ask) continue;
        if (failure.kind === "moved") {
          this.#topology.moved(stream, this.#topology.nodeAt(failure.address, node));
          continue;
        }
        // A failover made this node a replica: reconnecting finds the new master behind its name.
        if (failure.kind === "readonly" && node.commands.generation === generation)
          for (const connection of [node.commands, node.subscriber])
            connection.reconnect("it is a replica now");
        await this.#pause(attempt);
      }
    }
  }

  /** Subscribes to a channel on the node of its slot. Messages arrive once this resolves. */
  async subscribe(channel: string): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const node = this.#topology.ownerOf(channel);
      this.#subscribedOn.set(channel, node);
      try {
        return await node.subscriber.add(channel);
      } catch (error) {
        this.unsubscribe(channel);
        const failure = this.#retryableFailure(error as Error, node, attempt);
        if (failure.kind === "moved")
          this.#topology.moved(channel, this.#topology.nodeAt(failure.address, node));
        await this.#pause(attempt);
      }
    }
  }

  unsubscribe(channel: string): void {
    this.#subscribedOn.get(channel)?.subscriber.remove(channel);
    this.#subscribedOn.delete(channel);
  }

  /** Why an attempt failed, if it can be retried; throws the error for the caller if not. */
  #retryableFailure(error: Error, node: RedisNode, attempt: number) {
    if (error instanceof KhalaError) throw error;
    const failure = failureOf(error);
    if (failure.kind === "answer" || attempt >= MAX_ATTEMPTS || this.#stopping.signal.aborted)
      throw redisError(error, node.commands.name);
    return failure;
  }

  async #pause(attempt: number): Promise<void> {
    this.#topology.refreshSoon();
    await sleep(this.#context.clock, 25 * 2 ** attempt, this.#stopping.signal);
  }

  /** Moves subscriptions to the nodes that own their slots now. */
  async #resubscribe(): Promise<void> {
    const stale = new Set(this.#topology.nodes.filter((node) => node.mayHaveDroppedChannels));
    for (const node of stale) node.mayHaveDroppedChannels = false;
    try {
      const misplaced = [...this.#subscribedOn].filter(
        ([channel, node]) => stale.has(node) || this.#topology.ownerOf(channel) !== node,
      );
      for (let i = 0; i < misplaced.length; i += BATCH_SIZE)
        await Promise.all(
          misplaced.slice(i, i + BATCH_SIZE).map(([channel, node]) => this.#move(channel, node)),
        );
    } catch (error) {
      for (const node of stale) node.mayHaveDroppedChannels = true;
      throw error;
    }
  }

  async #move(channel: string, previous: RedisNode): Promise<void> {
    const owner = this.#topology.ownerOf(channel);
    await owner.subscriber.add(channel);
    const now = this.#subscribedOn.get(channel);
    // The channel was unsubscribed or moved since.
    if (now !== previous && now !== owner) return owner.subscriber.remove(channel);
    if (owner !== previous) previous.subscriber.remove(channel);
    this.#subscribedOn.set(channel, owner);
    this.#listener.missed([channel]);
  }
}
