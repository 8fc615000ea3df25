import { everything, Follower, START } from "@khala/test-support/conformance/log/support";
import { eventually } from "@khala/test-support/kit/eventually";
import { startTcpProxy } from "@khala/test-support/processes/tcp_proxy";
import { redisHere, startRedis } from "@khala/test-support/redis/redis";
import { newStream, openTestLog } from "@khala/test-support/redis/redis_log";
import type { RedisServer } from "@khala/test-support/redis/server";
import { describe, expect, test } from "vitest";

const proxyTo = ({ port }: RedisServer) => startTcpProxy({ host: "127.0.0.1", port });
/** A new replica need not wait for others to join it. */
const SOON = ["--repl-diskless-sync-delay", "0"];
const numbers = (entries: readonly { seq: bigint }[]) => entries.map(({ seq }) => Number(seq));
const upTo = (n: number) => Array.from({ length: n }, (_, i) => i + 1);

describe.runIf(redisHere().own)("when Redis fails", () => {
  test("a lost subscriber connection is restored, and nothing is lost", async () => {
    await using server = await startRedis();
    await using log = await openTestLog(server.url);
    await using writer = await openTestLog(server.url);
    const streams = Array.from({ length: 30 }, newStream);
    const followers = await Promise.all(streams.map((stream) => new Follower(log, stream).start()));
    for (let round = 1; round <= 3; round++) {
      await server.client.call("CLIENT", "KILL", "TYPE", "pubsub");
      await Promise.all(streams.map((stream) => writer.append(stream, [`${round} a`, `${round} b`])));
      for (const follower of followers) await follower.reaches(BigInt(round * 2));
    }
    for (const [i, follower] of followers.entries())
      expect(follower.entries).toEqual(await everything(log, streams[i]!));
  });

  test("notifies watchers of a lost connection when it breaks, and again when it is back", async () => {
    await using server = await startRedis();
    await using log = await openTestLog(server.url);
    let missed = 0;
    await log.watch(newStream(), { appended() {}, missed: () => void missed++ });
    await server.kill();
    await eventually("it is told", () => missed > 0);
    await server.restart();
    await eventually("it is told again", () => missed > 1);
  });

  test("detects and replaces a subscriber whose connection died silently", async () => {
    await using server = await startRedis();
    await using proxy = await proxyTo(server);
    await using log = await openTestLog(proxy.through(server.url), { commandTimeoutMs: 3_000 });
    await using writer = await openTestLog(server.url);
    const stream = newStream();
    const follower = await new Follower(log, stream).start();
    proxy.pause("answers");
    await writer.append(stream, ["unheard"]);
    await eventually("the silence was noticed", () => !log.state().ready);
    proxy.resume();
    await eventually("the watcher is told to look", async () => {
      await follower.catchUp().catch(() => undefined);
      return follower.entries.length === 1;
    });
  });

  test("sends scripts again that the server forgot", async () => {
    await using server = await startRedis();
    await using log = await openTestLog(server.url);
    const stream = newStream();
    await log.append(stream, ["1"]);
    await server.client.script("FLUSH");
    await Promise.all([
      log.append(stream, ["2"]),
      log.append(stream, ["3"]),
      log.read(stream, START, { entries: 1, bytes: 1 }),
    ]);
    const all = await everything(log, stream);
    expect(all.map(({ data }) => data)).toEqual(["1", "2", "3"]);
  });

  test("a full server refuses with overloaded, reads work, and appends work again once there is room", async () => {
    await using server = await startRedis();
    await using log = await openTestLog(server.url);
    const stream = newStream();
    await log.append(stream, ["kept".repeat(1 << 19)]);
    await server.client.config("SET", "maxmemory-policy", "noeviction");
    await server.client.config("SET", "maxmemory", "1mb");
    const error: unknown = await log.append(stream, ["x"]).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "overloaded", message: expect.stringMatching(/Raise maxmemory/) });
    await expect(log.append(newStream(), ["x"])).rejects.toMatchObject({ code: "overloaded" });
    expect(await everything(log, stream)).toHaveLength(1);
    await server.client.config("SET", "maxmemory", "0");
    expect((await log.append(stream, ["y"])).head.seq).toBe(2n);
  });

  test("after kill -9 and a restart on its file, the sequence continues without a gap, and watchers are notified", async () => {
    await using server = await startRedis();
    await using log = await openTestLog(server.url, { commandTimeoutMs: 20_000 });
    const stream = newStream();
    const follower = await new Follower(log, stream).start();
    let appended = 0;
    let stop = false;
    const writing = (async () => {
      while (!stop) {
        const done = await log.append(stream, ["x"]).then(
          () => true,
          (error: { code?: string }) => {
            if (error.code !== "unavailable") throw error;
            return false;
          },
        );
        if (done) appended++;
      }
    })();
    for (let round = 0; round < 2; round++) {
      const before = appended;
      await eventually("entries are appended", () => appended > before + 20);
      await server.kill();
      await server.restart();
    }
    stop = true;
    await writing;
    const { head, epoch } = await log.append(stream, ["last"]);
    const all = await everything(log, stream);
    expect(numbers(all)).toEqual(upTo(Number(head.seq)));
    expect(all.at(-1)!.data).toBe("last");
    await eventually("the watcher has the last entry", async () => {
      await follower.catchUp();
      return follower.entries.at(-1)?.data === "last" && follower.epoch === epoch;
    });
  });

  test("a server that became a replica is unavailable until there is a master again", async () => {
    await using master = await startRedis({ settings: SOON });
    await using server = await startRedis();
    await using log = await openTestLog(server.url);
    const stream = newStream();
    await server.client.replicaof("127.0.0.1", master.port);
    await eventually("it is a replica", async () =>
      /role:slave[\s\S]*master_link_status:up/.test(await server.client.info("replication")),
    );
    await expect(log.append(stream, ["x"])).rejects.toMatchObject({
      code: "unavailable",
      details: { retry_after_ms: expect.any(Number) },
    });
    await server.client.replicaof("NO", "ONE");
    const { head } = await eventually("it can be written", () =>
      log.append(stream, ["x"]).catch(() => undefined),
    );
    expect(head.seq).toBe(1n);
  });

  test("follows a failover behind one address: the append reaches the new master", async () => {
    await using old = await startRedis({ settings: SOON });
    await using next = await startRedis();
    await next.client.replicaof("127.0.0.1", old.port);
    await using proxy = await proxyTo(old);
    await using log = await openTestLog(proxy.through(old.url));
    const stream = newStream();
    const follower = await new Follower(log, stream).start();
    await log.append(stream, ["1"]);
    await eventually("it was replicated", async () => (await next.client.xlen(stream)) === 1);
    await next.client.replicaof("NO", "ONE");
    await old.client.replicaof("127.0.0.1", next.port);
    proxy.switchTo({ host: "127.0.0.1", port: next.port });
    expect((await log.append(stream, ["2"])).head.seq).toBe(2n);
    expect(await next.client.xlen(stream)).toBe(2);
    await follower.reaches(2n);
  });

  test("commands fail within a bounded time while it is unreachable, then at once, and work when it is back", async () => {
    await using server = await startRedis();
    await using proxy = await proxyTo(server);
    await using log = await openTestLog(proxy.through(server.url), { commandTimeoutMs: 3_000 });
    const stream = newStream();
    await log.append(stream, ["1"]);
    proxy.refuse();
    const all = await Promise.allSettled(Array.from({ length: 5_000 }, () => log.append(stream, ["lost"])));
    const reasons = all.map((each) => (each.status === "rejected" ? each.reason.code : "appended"));
    expect(new Set(reasons)).toEqual(new Set(["unavailable"]));
    expect(log.state()).toMatchObject({ ready: false });
    await expect(log.watch(newStream(), { appended() {}, missed() {} })).rejects.toMatchObject({
      code: "unavailable",
    });
    proxy.resume();
    await eventually("it is ready again", () => log.state().ready);
    expect((await log.append(stream, ["2"])).head.seq).toBe(2n);
  });

  test("reports an append whose answer was lost, and does not repeat it", async () => {
    await using server = await startRedis();
    await using proxy = await proxyTo(server);
    await using log = await openTestLog(proxy.through(server.url));
    const stream = newStream();
    await log.append(stream, ["1"]);
    proxy.pause("answers");
    const appending = log.append(stream, ["perhaps"]);
    const settled = appending.catch((error: unknown) => error);
    await eventually("it was done", async () => (await server.client.xlen(stream)) === 2);
    proxy.resume();
    proxy.cut();
    // The answer may have slipped through before the cut.
    expect([2n, "unavailable"]).toContainEqual(
      await settled.then((answer) => {
        const { code, head } = answer as { code?: string; head?: { seq: bigint } };
        return code ?? head?.seq;
      }),
    );
    expect((await log.append(stream, ["3"])).head.seq).toBe(3n);
    expect((await everything(log, stream)).map(({ data }) => data)).toEqual(["1", "perhaps", "3"]);
  });

  test("a missing or incompatible server is a clear error at the start", async () => {
    await using server = await startRedis();
    await using proxy = await proxyTo(server);
    proxy.refuse();
    await expect(openTestLog(proxy.through(server.url), { commandTimeoutMs: 200 })).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining(`127.0.0.1:${proxy.port}`),
    });
    await expect(openTestLog(`redis-cluster://127.0.0.1:${server.port}`)).rejects.toThrow(/is not a cluster/);
    await expect(openTestLog("http://somewhere")).rejects.toThrow(/is not valid/);
    await server.client.config("SET", "requirepass", "secret word");
    const wrong = openTestLog(`redis://:wrong@127.0.0.1:${server.port}`, { commandTimeoutMs: 300 });
    await expect(wrong).rejects.toMatchObject({ code: "unavailable" });
    await using log = await openTestLog(`redis://:secret%20word@127.0.0.1:${server.port}`);
    expect((await log.append(newStream(), ["x"])).head.seq).toBe(1n);
  });
});
