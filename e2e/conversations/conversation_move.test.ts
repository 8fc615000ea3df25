import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { TimelineSocket } from "@khala/test-support/clients/timeline_socket";
import { until } from "@khala/test-support/kit/until";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import { startKhala } from "@khala/test-support/processes/processes";
import { redisHere, startRedis } from "@khala/test-support/redis/redis";
import { describe, expect, test } from "vitest";
import { ROOT } from "../../scripts/run.ts";

const SECRETS = `k1:${Buffer.alloc(32, 1).toString("base64")}`;

async function khala(args: readonly string[], env: Record<string, string>): Promise<string> {
  const main = join(ROOT, "packages/cli/src/main.ts");
  const options = { cwd: ROOT, env: { ...bareEnv(), ...env } };
  const command = ["--conditions=khala-source", main, ...args];
  const { stdout } = await promisify(execFile)(process.execPath, command, options);
  return stdout;
}

describe.runIf(redisHere().own)("moving from PostgreSQL to Redis", () => {
  test("moving to Redis keeps every conversation and cursor, and copying twice duplicates nothing", async () => {
    await using database = await testDatabase();
    await using redis = await startRedis();
    const env = { DATABASE_URL: database.url, KHALA_AUTH_SECRETS: SECRETS };
    const moved = { ...env, REDIS_URL: redis.url };
    const token = (await khala(["token", "--scope", "chat"], env)).trim();
    const say = async (url: string, message: string) => {
      const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
      const body = JSON.stringify({ conv_id: "c1", message });
      const answer = await fetch(`${url}/chat`, { method: "POST", headers, body });
      expect(answer.status).toBe(202);
      const { cursor } = (await answer.json()) as { cursor: string };
      await until("the end", async () => {
        const state = await fetch(`${url}/chat/c1`, { headers });
        return ((await state.json()) as { run: unknown }).run === null;
      });
      return cursor;
    };
    const follow = (url: string, after: string) =>
      TimelineSocket.connect(`${url.replace("http", "ws")}/ws`, { conv_id: "c1", token, after });
    const events = ({ frames }: TimelineSocket) => frames.filter(({ type }) => type === "event");
    const ends = (socket: TimelineSocket) =>
      events(socket).filter((frame) => JSON.stringify(frame).includes("run_finished")).length;

    let cursor: string;
    let before: readonly unknown[];
    {
      await using server = await startKhala({ command: "serve", env });
      cursor = await say(server.url, "one");
      expect(JSON.parse(await khala(["conversations", "copy", "--json"], moved))).toMatchObject({
        conversations: 1,
        refused: [],
      });
      await say(server.url, "two");
      await using socket = await follow(server.url, cursor);
      await until("both answers", () => ends(socket) === 2, { on: socket });
      before = events(socket);
    }
    const again = JSON.parse(await khala(["conversations", "copy", "--json"], moved));
    expect(again).toMatchObject({ conversations: 1, refused: [] });
    expect(again.events).toBeLessThan(before.length);

    await using server = await startKhala({ command: "serve", env: moved });
    await using socket = await follow(server.url, cursor);
    await until("both answers", () => ends(socket) === 2, { on: socket });
    expect(events(socket)).toEqual(before);
    expect(socket.frames.some(({ type }) => type === "resync")).toBe(false);
    await say(server.url, "three");
    await until("the third answer", () => ends(socket) === 3, { on: socket });
    expect(events(socket).map(({ seq }) => Number(seq))).toEqual(events(socket).map((_, i) => i + 1));
  });
});
