import { Redis } from "ioredis";
import { inject } from "vitest";
import { eventually } from "../kit/eventually.ts";
import { type RedisBinary, type RedisServer, type RedisServerOptions, startRedisServer } from "./server.ts";

/** Whether this run has Redis, and whether tests can start servers of their own. */
export function redisHere(): { readonly shared: boolean; readonly own: boolean } {
  const env = inject("services")?.redis;
  return { shared: env !== undefined, own: env?.BINARY !== undefined };
}

/** The Redis shared by all files of a run: each test must use its own stream names. */
export interface TestRedis extends AsyncDisposable {
  readonly url: string;
  /** A client for the test's own commands. */
  readonly client: Redis;
}

/** Connects to the shared server. */
export async function testRedis(): Promise<TestRedis> {
  const env = inject("services")?.redis;
  if (!env)
    throw new Error("There is no Redis in this run. Only *.pg.test.ts files and those in e2e/ get one.");
  const client = new Redis(env.REDIS_URL!, { lazyConnect: true });
  await client.connect();
  return {
    url: env.REDIS_URL!,
    client,
    async [Symbol.asyncDispose]() {
      client.disconnect();
    },
  };
}

/** Starts a server that belongs to the test. */
export async function startRedis(options: RedisServerOptions = {}): Promise<RedisServer> {
  const binary = inject("services")?.redis?.BINARY;
  if (!binary) throw new Error("This run has no Redis that a test could start.");
  return startRedisServer(JSON.parse(binary) as RedisBinary, options);
}

/** Starts a node that can join a cluster. */
export async function startRedisNode(): Promise<RedisServer> {
  const settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "15000"];
  return startRedis({ settings: [...settings, "--repl-diskless-sync-delay", "0"] });
}

/** Three masters, each with a third of the slots. */
export interface RedisCluster extends AsyncDisposable {
  readonly url: string;
  readonly nodes: readonly RedisServer[];
  /** Lets a server join, and follow one of the nodes. */
  addReplica(server: RedisServer, of: number): Promise<void>;
  /** Moves a slot with its keys to another node. `during` runs after the keys have moved, and before the slot has. */
  move(slot: number, to: number, during?: () => Promise<void>): Promise<void>;
}

/** Starts a cluster that belongs to the test. */
export async function startRedisCluster(): Promise<RedisCluster> {
  const nodes: RedisServer[] = [];
  const dispose = async () => {
    for (const node of nodes) await node[Symbol.asyncDispose]();
  };
  try {
    for (let i = 0; i < 3; i++) nodes.push(await startRedisNode());
    await join(nodes);
  } catch (error) {
    await dispose();
    throw error;
  }
  return {
    url: `redis-cluster://${nodes.map(({ port }) => `127.0.0.1:${port}`).join(",")}`,
    nodes,
    async addReplica({ client }, of) {
      const master = nodes[of]!;
      await client.call("CLUSTER", "MEET", "127.0.0.1", master.port);
      const id = String(await master.client.cluster("MYID"));
      await eventually("it knows the cluster", async () =>
        String(await client.cluster("INFO")).includes("cluster_state:ok"),
      );
      await client.call("CLUSTER", "REPLICATE", id);
      await eventually("it follows", async () =>
        (await client.info("replication")).includes("master_link_status:up"),
      );
      const replica = new RegExp(`^${await client.cluster("MYID")} .* slave ${id} `, "m");
      for (const node of nodes)
        await eventually("every node knows it", async () =>
          replica.test(String(await node.client.cluster("NODES"))),
        );
    },
    async move(slot, to, during) {
      const target = nodes[to]!;
      const id = String(await target.client.cluster("MYID"));
      for (const source of nodes.filter((node) => node !== target)) {
        const keys = (await source.client.cluster("GETKEYSINSLOT", slot, 1_000)) as string[];
        if (keys.length === 0) continue;
        const from = String(await source.client.cluster("MYID"));
        await target.client.call("CLUSTER", "SETSLOT", slot, "IMPORTING", from);
        await source.client.call("CLUSTER", "SETSLOT", slot, "MIGRATING", id);
        await source.client.call("MIGRATE", "127.0.0.1", target.port, "", 0, 5_000, "KEYS", ...keys);
      }
      await during?.();
      // The new owner first, so that the slot always has one.
      for (const node of [target, ...nodes.filter((other) => other !== target)])
        await node.client.call("CLUSTER", "SETSLOT", slot, "NODE", id);
    },
    [Symbol.asyncDispose]: dispose,
  };
}

async function join(nodes: readonly RedisServer[]): Promise<void> {
  const bounds = [0, 5_461, 10_923, 16_384];
  for (const [i, { client }] of nodes.entries()) {
    const slots = Array.from({ length: bounds[i + 1]! - bounds[i]! }, (_, slot) => bounds[i]! + slot);
    await client.call("CLUSTER", "ADDSLOTS", ...slots);
    await client.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1);
  }
  const [first, ...others] = nodes;
  for (const other of others) await first!.client.call("CLUSTER", "MEET", "127.0.0.1", other.port);
  for (const { client } of nodes)
    await eventually("the cluster serves every slot", async () => {
      const info = String(await client.cluster("INFO"));
      return info.includes("cluster_state:ok") && info.includes("cluster_known_nodes:3");
    });
}
