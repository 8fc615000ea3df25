import { everything, Follower } from "@khala/test-support/conformance/log/support";
import { eventually } from "@khala/test-support/kit/eventually";
import {
  type RedisCluster,
  redisHere,
  startRedisCluster,
  startRedisNode,
} from "@khala/test-support/redis/redis";
import { newStream, openTestLog } from "@khala/test-support/redis/redis_log";
import type { RedisServer } from "@khala/test-support/redis/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { slotOf } from "../../packages/server/src/conversations/log/redis/topology.ts";

describe.runIf(redisHere().own)("on a Redis cluster", () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await startRedisCluster();
  });
  afterAll(() => cluster[Symbol.asyncDispose]());

  const ownerOf = async (stream: string) => {
    for (const [i, { client }] of cluster.nodes.entries())
      if (await client.exists(stream).catch(() => 0)) return i;
    return undefined;
  };

  /** Before Redis 7 channels have no slots: what is said on any node is heard on all. */
  const sharded = async ({ client }: RedisServer) =>
    Number((await client.info("server")).match(/redis_version:(\d+)/)![1]) >= 7;
  const channelsOf = async (node: RedisServer) =>
    (await node.client.call("PUBSUB", (await sharded(node)) ? "SHARDCHANNELS" : "CHANNELS")) as string[];

  test("a stream's keys and its channel share a slot", async () => {
    const [{ client }] = cluster.nodes as [(typeof cluster.nodes)[0]];
    for (const stream of Array.from({ length: 20 }, newStream)) {
      const slots = [stream, `{${stream}}:meta`].map((key) => client.cluster("KEYSLOT", key));
      expect(await Promise.all(slots)).toEqual([slotOf(stream), slotOf(stream)]);
    }
  });

  test("spreads streams over the nodes, with two connections to each, however many are watched", async () => {
    await using log = await openTestLog(cluster.url);
    const streams = Array.from({ length: 200 }, newStream);
    const followers = await Promise.all(streams.map((stream) => new Follower(log, stream).start()));
    await Promise.all(streams.map((stream) => log.append(stream, ["x"])));
    for (const follower of followers) await follower.reaches(1n);
    const owners = new Set(await Promise.all(streams.map(ownerOf)));
    expect(owners).toEqual(new Set([0, 1, 2]));
    for (const { client } of cluster.nodes)
      await eventually("each node has two", async () => {
        const list = String(await client.client("LIST"));
        return list.split("\n").filter((line) => line.includes("name=khala")).length === 2;
      });
    const heard = await Promise.all(cluster.nodes.map((node) => channelsOf(node)));
    expect(heard.every(({ length }) => length > 0)).toBe(true);
    expect(heard.flat().toSorted()).toEqual(streams.toSorted());
    for (const follower of followers) follower.stop();
  });

  test("one address of one node is enough, even if the URL does not name a cluster", async () => {
    for (const scheme of ["redis", "redis-cluster"]) {
      await using log = await openTestLog(`${scheme}://127.0.0.1:${cluster.nodes[1]!.port}`);
      expect(log.state()).toMatchObject({ backend: "redis cluster", nodes: [{}, {}, {}] });
      for (const stream of Array.from({ length: 10 }, newStream))
        expect((await log.append(stream, ["x"])).head.seq).toBe(1n);
    }
  });

  test("a slot that moves takes its streams and watchers along, and can be written meanwhile", async () => {
    await using log = await openTestLog(cluster.url);
    await using writer = await openTestLog(cluster.url);
    const stream = newStream();
    const follower = await new Follower(log, stream).start();
    await writer.append(stream, ["1"]);
    await follower.reaches(1n);
    const from = (await ownerOf(stream))!;
    const to = (from + 1) % 3;
    await cluster.move(slotOf(stream), to, async () => {
      expect((await writer.append(stream, ["2"])).head.seq).toBe(2n);
    });
    const moved = await writer.append(stream, ["3"]);
    await follower.reaches(3n, moved.epoch);
    await eventually("it is heard where it is, and only there", async () => {
      if (!(await sharded(cluster.nodes[to]!))) return true;
      const heard = await Promise.all(cluster.nodes.map((node) => channelsOf(node)));
      return heard.every((channels, i) => channels.includes(stream) === (i === to));
    });
    await writer.append(stream, ["4"]);
    await follower.reaches(4n, moved.epoch);
    expect(follower.entries.map(({ data }) => data)).toEqual(["1", "2", "3", "4"]);
  });

  test("a killed node is used again when it returns, and the others work meanwhile", async () => {
    await using log = await openTestLog(cluster.url, { commandTimeoutMs: 5_000 });
    const streams = Array.from({ length: 12 }, newStream);
    const followers = await Promise.all(streams.map((stream) => new Follower(log, stream).start()));
    await Promise.all(streams.map((stream) => log.append(stream, ["1"])));
    const owners = await Promise.all(streams.map(ownerOf));
    const victim = owners[0]!;
    for (const { client } of cluster.nodes) await client.config("SET", "cluster-require-full-coverage", "no");
    await cluster.nodes[victim]!.kill();
    const outcomes = await Promise.allSettled(streams.map((stream) => log.append(stream, ["2"])));
    for (const [i, outcome] of outcomes.entries())
      expect(outcome.status).toBe(owners[i] === victim ? "rejected" : "fulfilled");
    await cluster.nodes[victim]!.restart();
    await eventually("every stream can be written again", async () => {
      const all = await Promise.allSettled(streams.map((stream) => log.append(stream, ["3"])));
      return all.every(({ status }) => status === "fulfilled");
    });
    await eventually("the log is ready", () => log.state().ready);
    for (const [i, stream] of streams.entries()) {
      const { head, epoch } = await log.append(stream, ["last"]);
      await followers[i]!.reaches(head.seq, epoch);
      expect(followers[i]!.entries).toEqual(await everything(log, stream));
    }
  });

  test("follows a replica that takes over", async () => {
    await using log = await openTestLog(cluster.url, { commandTimeoutMs: 5_000 });
    await using replica = await startRedisNode();
    const stream = newStream();
    await log.append(stream, ["1"]);
    const from = (await ownerOf(stream))!;
    const follower = await new Follower(log, stream).start();
    await cluster.addReplica(replica, from);
    await replica.client.call("CLUSTER", "FAILOVER", "TAKEOVER");
    // Before the old master knows, it takes entries that it then throws away, as in any failover.
    for (const [role, { client }] of [
      ["master", replica],
      ["slave", cluster.nodes[from]!],
    ] as const)
      await eventually(`one is ${role}`, async () =>
        (await client.info("replication")).includes(`role:${role}`),
      );
    const { head, epoch } = await log.append(stream, ["2"]);
    await follower.reaches(head.seq, epoch);
    expect((await everything(log, stream)).map(({ data }) => data)).toEqual(["1", "2"]);
    expect(log.state().nodes.map(({ address }) => address)).toContain(`127.0.0.1:${replica.port}`);
  });
});
