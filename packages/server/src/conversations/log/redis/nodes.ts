import { KhalaError } from "@khala/contracts";
import { sleep } from "../../../kit/clock.ts";
import type { Context } from "../../../kit/context.ts";
import { failureOf, redisError } from "./errors.ts";
import { keysOf, type RedisScript } from "./scripts.ts";
import { slotOf } from "./slots.ts";
import type { SubscriberListener } from "./subscriber.ts";
import { type RedisNode, type RedisNodeState, RedisTopology, type RedisTopologyOptions } from "./topology.ts";

const ATTEMPTS = 6;
const REPEATS_AFTER_LOSS = 1;
const CHUNK = 500;

/** Runs scripts and hears channels where they belong, and follows when that changes. */
export class RedisNodes {
  readonly #context: Context;
  readonly #listener: Omit<SubscriberListener, "moved">;
  readonly #topology: RedisTopology;
  /** Where each channel is heard. */
  readonly #homes = new Map<string, RedisNode>();
  readonly #stopping = new AbortController();
  readonly #cluster: boolean;

  constructor(context: Context, options: RedisTopologyOptions, listener: Omit<SubscriberListener, "moved">) {
    this.#context = context;
    this.#cluster = options.cluster;
    this.#listener = listener;
    this.#topology = new RedisTopology(context, options, { ...listener, changed: () => this.#rehome() });
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

  /** Divides streams into those that one script may touch, by their places in the list: those of one slot in a cluster. */
  together(streams: readonly string[]): number[][] {
    if (!this.#cluster) return [[...streams.keys()]];
    const bySlot = new Map<number, number[]>();
    for (const [place, stream] of streams.entries()) {
      const slot = slotOf(stream);
      const places = bySlot.get(slot);
      if (places) places.push(place);
      else bySlot.set(slot, [place]);
    }
    return [...bySlot.values()];
  }

  /**
   * Runs a script where the stream is. What was surely not done is tried again for a while; what may have been done
   * only if `repeatable`. The keys are the stream's own, or those of all that were found to go together with it.
   */
  async run(
    stream: string,
    script: RedisScript,
    args: readonly string[],
    repeatable: boolean,
    keys: readonly string[] = keysOf(stream),
  ): Promise<unknown> {
    let ask: RedisNode | undefined;
    let losses = repeatable ? REPEATS_AFTER_LOSS : 0;
    for (let attempt = 1; ; attempt++) {
      const node = ask ?? this.#topology.ownerOf(stream);
      const { times } = node.commands;
      try {
        return await node.commands.script(script, keys, args, ask !== undefined);
      } catch (error) {
        const failure = this.#failureOf(error as Error, node, attempt);
        if (failure.kind === "lost" && losses-- === 0) throw redisError(error as Error, node.commands.name);
        ask = failure.kind === "ask" ? this.#topology.named(failure.address, node) : undefined;
        if (ask) continue;
        if (failure.kind === "moved") {
          this.#topology.moved(stream, this.#topology.named(failure.address, node));
          continue;
        }
        // A failover made this server a replica: whoever has its name now is found by connecting again.
        if (failure.kind === "readonly" && node.commands.times === times)
          for (const connection of [node.commands, node.subscriber]) connection.cut("it is a replica now");
        await this.#pause(attempt);
      }
    }
  }

  /** Hears a channel from when this resolves, wherever its slot is. */
  async subscribe(channel: string): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      const node = this.#topology.ownerOf(channel);
      this.#homes.set(channel, node);
      try {
        return await node.subscriber.add(channel);
      } catch (error) {
        this.unsubscribe(channel);
        const failure = this.#failureOf(error as Error, node, attempt);
        if (failure.kind === "moved")
          this.#topology.moved(channel, this.#topology.named(failure.address, node));
        await this.#pause(attempt);
      }
    }
  }

  unsubscribe(channel: string): void {
    this.#homes.get(channel)?.subscriber.remove(channel);
    this.#homes.delete(channel);
  }

  /** Why an attempt failed, if another one makes sense; throws what the caller is told if not. */
  #failureOf(error: Error, node: RedisNode, attempt: number) {
    if (error instanceof KhalaError) throw error;
    const failure = failureOf(error);
    if (failure.kind === "answer" || attempt >= ATTEMPTS || this.#stopping.signal.aborted)
      throw redisError(error, node.commands.name);
    return failure;
  }

  async #pause(attempt: number): Promise<void> {
    this.#topology.refreshSoon();
    await sleep(this.#context.clock, 25 * 2 ** attempt, this.#stopping.signal);
  }

  /** Hears channels where their slots are now. */
  async #rehome(): Promise<void> {
    const doubtful = new Set(this.#topology.nodes.filter((node) => node.doubtful));
    for (const node of doubtful) node.doubtful = false;
    try {
      const astray = [...this.#homes].filter(
        ([channel, home]) => doubtful.has(home) || this.#topology.ownerOf(channel) !== home,
      );
      for (let i = 0; i < astray.length; i += CHUNK)
        await Promise.all(astray.slice(i, i + CHUNK).map(([channel, home]) => this.#move(channel, home)));
    } catch (error) {
      for (const node of doubtful) node.doubtful = true;
      throw error;
    }
  }

  async #move(channel: string, home: RedisNode): Promise<void> {
    const owner = this.#topology.ownerOf(channel);
    await owner.subscriber.add(channel);
    const now = this.#homes.get(channel);
    // Nobody may watch it any more, or it was found elsewhere meanwhile.
    if (now !== home && now !== owner) return owner.subscriber.remove(channel);
    if (owner !== home) home.subscriber.remove(channel);
    this.#homes.set(channel, owner);
    this.#listener.missed([channel]);
  }
}
