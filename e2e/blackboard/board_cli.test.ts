import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ArtifactJson, ArtifactListJson, DeadLetterJson } from "@khala/contracts/blackboard/v1";
import { eventually } from "@khala/test-support/kit/eventually";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import app from "@khala/test-support/programs/board_app";
import { type BoardServer, startBoard } from "@khala/test-support/servers/board_server";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { replayAllDeadLetters } from "../../packages/cli/src/commands/board/dlq.ts";
import { ROOT } from "../../scripts/run.ts";

let folder: string;
let database: TestDatabase;
let server: BoardServer;
let env: Record<string, string>;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-board-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** A server for the tests of a part of this file. */
function withServer(): void {
  beforeAll(async () => {
    database = await testDatabase();
    server = await startBoard(database.url, { agents: app.agents });
    env = {
      KHALA_URL: server.url,
      KHALA_TOKEN: await server.token({ scopes: ["blackboard:read", "blackboard:write", "ops", "platform"] }),
    };
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    await database[Symbol.asyncDispose]();
  });
}

function start(args: readonly string[], more: Record<string, string> = {}) {
  const command = ["--conditions=khala-source", join(ROOT, "packages/cli/src/main.ts"), ...args];
  return spawn(process.execPath, command, { cwd: folder, env: { ...bareEnv(), ...env, ...more } });
}

/** Runs a command to its end. */
async function khala(args: readonly string[], input = "") {
  const child = start(args);
  const text = { out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (chunk) => (text.out += chunk));
  child.stderr.setEncoding("utf8").on("data", (chunk) => (text.err += chunk));
  child.stdin.end(input);
  const [code] = await once(child, "close");
  return { code, ...text };
}

const lines = <T>(text: string) =>
  text
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as T);

/** Waits until picky has so many dead letters of a correlation. */
function buried(correlation: string, count: number) {
  return eventually(`${count} dead letters`, async () => {
    const path = `/dead-letters/picky?correlation_id=${correlation}&limit=1000`;
    const { body } = await server.get<{ dead_letters?: Required<DeadLetterJson>[] }>(path);
    return body.dead_letters?.length === count && body.dead_letters;
  });
}

/** Dead letters of picky in a correlation of their own. */
async function deadLetters(count: number) {
  const correlation_id = randomUUID();
  const artifacts = Array.from({ length: count }, () => ({ type: "Fragile", payload: {}, correlation_id }));
  await server.post("/artifacts", { artifacts });
  return { correlation_id, letters: await buried(correlation_id, count) };
}

describe("khala publish", () => {
  withServer();

  test("says when no agent consumes the type", async () => {
    const { code, out, err } = await khala(["publish", "Darft"]);
    expect({ code, out }).toEqual({ code: 0, out: expect.stringMatching(/^Darft \S+ is published\.\n$/) });
    expect(err).toMatch(/^No agent consumes Darft\. Agents consume .*\bDraft\b.*\.\n$/);
  });

  test("publishes the given artifact, and prints its id", async () => {
    const correlation = randomUUID();
    const id = randomUUID();
    const args = ["publish", "Draft", "--payload", '{"text":"hi"}', "--correlation", correlation, "--id", id];
    const more = ["--key", "customer-7", "--tag", "a", "b"];
    expect(await khala([...args, ...more])).toEqual({ code: 0, out: `Draft ${id} is published.\n`, err: "" });
    const { body } = await server.get<ArtifactJson>(`/artifacts/${id}`);
    expect(body).toMatchObject({
      payload: { text: "hi" },
      correlation_id: correlation,
      partition_key: "customer-7",
      tags: ["a", "b"],
    });
    expect((await khala([...args, ...more])).out).toBe(`Draft ${id} is there already.\n`);
  });

  test("reads the payload from a file or stdin, and can schedule the artifact", async () => {
    await writeFile(join(folder, "draft.json"), '{"text":"from a file"}');
    const file = await khala(["publish", "Note", "--payload", "@draft.json", "--json"]);
    const [{ id }] = lines<{ id: string }>(file.out) as [{ id: string }];
    expect((await server.get<ArtifactJson>(`/artifacts/${id}`)).body.payload).toEqual({
      text: "from a file",
    });
    const piped = await khala(["publish", "Note", "--payload", "-", "--json"], '"from the input"');
    const [{ id: second }] = lines<{ id: string }>(piped.out) as [{ id: string }];
    expect((await server.get<ArtifactJson>(`/artifacts/${second}`)).body.payload).toBe("from the input");
    const later = await khala(["publish", "Note", "--at", "2099-01-01T00:00:00Z", "--json"]);
    expect(lines(later.out)).toMatchObject([{ status: "scheduled" }]);
  });

  test("reports an error in one line, with an exit code", async () => {
    expect(await khala(["publish", "Draft", "--payload", "{"])).toMatchObject({ code: 2, out: "" });
    expect(await khala(["publish", "Draft", "--payload", "@nowhere.json"])).toMatchObject({
      code: 2,
      err: expect.stringContaining("nowhere.json cannot be read"),
    });
    expect(await khala(["publish", "Draft", "--at", "soon"])).toMatchObject({ code: 2 });
    expect(await khala(["publish", "Draft", "--payload", '{"n":[12345678901234567890123]}'])).toMatchObject({
      code: 2,
      err: expect.stringContaining("n[0] is an integer beyond"),
    });
    const refused = await khala(["publish", "7", "--payload", "1"]);
    expect(refused).toMatchObject({ code: 1, err: expect.stringContaining("type must be") });
  });
});

describe("khala agents", () => {
  withServer();

  test("lists them, pauses, resumes and cancels one", async () => {
    const list = await khala(["agents"]);
    expect(list.out).toMatch(/^AGENT +STATE +WAITING/);
    expect(list.out).toMatch(/^reviewer +running .* Draft$/m);
    expect((await khala(["agents", "pause", "reviewer"])).out).toBe(
      "reviewer starts no new tasks; running ones continue.\n",
    );
    const [{ agents }] = lines<{ agents: { name: string; state: string }[] }>(
      (await khala(["agents", "--json"])).out,
    ) as [{ agents: { name: string; state: string }[] }];
    expect(agents.find(({ name }) => name === "reviewer")!.state).toBe("paused");
    const resumed = await khala(["agents", "resume", "reviewer", "--json"]);
    expect(lines(resumed.out)).toEqual([{ agent: "reviewer", state: "running" }]);
    const cancelled = await khala(["agents", "cancel", "reviewer", "--json"]);
    expect(lines(cancelled.out)).toEqual([{ agent: "reviewer", state: "cancelled" }]);
    expect(await khala(["agents", "pause", "nobody"])).toMatchObject({
      code: 1,
      err: expect.stringContaining("not_found"),
    });
  });
});

describe("khala artifacts, correlations and lag", () => {
  withServer();

  test("list artifacts, newest first, and show one", async () => {
    const correlation_id = randomUUID();
    for (const n of [1, 2]) await server.publish({ type: "Note", payload: { n }, correlation_id });
    const list = await khala(["artifacts", "--correlation", correlation_id]);
    const [head, newest, oldest] = list.out.trim().split("\n");
    expect(head).toMatch(/^ID +TYPE +CREATED AT +BY +CORRELATION +PAYLOAD$/);
    expect([newest, oldest]).toEqual([
      expect.stringContaining('{"n":2}'),
      expect.stringContaining('{"n":1}'),
    ]);
    const [found] = lines<Required<ArtifactJson>>(
      (await khala(["artifacts", "--type", "Note", "--limit", "1", "--json"])).out,
    );
    expect(found).toMatchObject({ type: "Note", payload: { n: 2 }, correlation_id });
    expect(lines((await khala(["artifacts", "show", found!.id, "--json"])).out)).toEqual([found]);
    expect(await khala(["artifacts", "--type", "Nothing"])).toMatchObject({ code: 0 });
    expect(await khala(["artifacts", "show", randomUUID()])).toMatchObject({
      code: 1,
      err: expect.stringContaining("not_found"),
    });
  });

  test("show a correlation, pause it, resume it, cancel it, and list it", async () => {
    const id = randomUUID();
    await server.publish({ type: "Draft", payload: {}, correlation_id: id });
    await server.correlation(id, "done");
    const [shown] = lines<{ correlation_id: string }>(
      (await khala(["correlations", "show", id, "--json"])).out,
    );
    expect(shown).toMatchObject({ correlation_id: id, status: "done", artifacts: "2" });
    expect((await khala(["correlations", "pause", id])).out).toMatch(/ is paused: /);
    expect((await khala(["correlations", "show", id])).out).toMatch(new RegExp(`^${id} +paused`, "m"));
    expect((await khala(["correlations", "resume", id])).out).toBe(`${id} is resumed.\n`);
    const cancelled = await khala(["correlations", "cancel", id, "--json"]);
    expect(lines(cancelled.out)).toEqual([{ correlation_id: id, state: "cancelled" }]);
    const resumed = await khala(["correlations", "resume", id, "--json"]);
    expect(lines(resumed.out)).toEqual([{ correlation_id: id, replayed: 0 }]);
    const token = await server.token({ scopes: ["blackboard.correlations"] });
    await eventually("the correlation in the list", async () => {
      const { out } = await khala(["correlations", "--json", "--token", token]);
      return out.includes(`"correlation_id":"${id}"`);
    });
    expect((await khala(["correlations", "--token", token])).out).toContain(id);
    expect(await khala(["correlations", "show", "nothing"])).toMatchObject({ code: 1 });
  });

  test("lag by reader and partition", async () => {
    expect((await khala(["lag"])).out).toMatch(/^READER +TOPIC +PARTITION +LAG +LAG HIGH$/m);
    const readers = lines<{ reader: string }>((await khala(["lag", "--json"])).out);
    expect(readers.map(({ reader }) => reader)).toContain("reviewer");
  });
});

// The command knows the server only by HTTP: what each backend does is tested there.
describe("khala dlq", () => {
  withServer();

  test("lists and shows dead letters", async () => {
    const { correlation_id, letters } = await deadLetters(3);
    const list = await khala(["dlq", "list", "picky", "--correlation", correlation_id]);
    expect(list.out.trim().split("\n")).toHaveLength(4);
    expect(list.out).toContain("FatalError: This cannot be fixed by trying.");
    const two = await khala([
      "dlq",
      "list",
      "picky",
      "--correlation",
      correlation_id,
      "--limit",
      "2",
      "--json",
    ]);
    expect(lines(two.out)).toEqual(letters.slice(0, 2));
    const show = await khala(["dlq", "show", "picky", letters[0]!.id]);
    expect(show.out).toContain("FatalError (fatal): This cannot be fixed by trying.");
    expect(show.out).toContain(correlation_id);
    expect(lines((await khala(["dlq", "show", "picky", letters[0]!.id, "--json"])).out)).toEqual([
      letters[0],
    ]);
    expect((await khala(["dlq", "list", "reviewer"])).out).toBe("reviewer has no dead letters.\n");
    expect(await khala(["dlq", "list", "nobody"])).toMatchObject({ code: 1 });
  });

  test("replays one, edited, once", async () => {
    const { correlation_id, letters } = await deadLetters(1);
    const args = ["dlq", "replay", "picky", letters[0]!.id, "--payload", '{"ok":true}'];
    expect((await khala(args)).out).toBe(`${letters[0]!.id} runs again.\n`);
    expect((await khala(args)).out).toBe(`${letters[0]!.id} was already replayed.\n`);
    await eventually("its output", async () => {
      const { body } = await server.get<ArtifactListJson>("/artifacts?type=Whole");
      return body.artifacts!.some((artifact) => artifact.correlation_id === correlation_id);
    });
    const both = [letters[0]!.id, randomUUID()];
    expect(await khala(["dlq", "replay", "picky", ...both, "--payload", "1"])).toMatchObject({ code: 2 });
  });

  test("replays all of a correlation, page by page, and reports progress", {
    timeout: 60_000,
  }, async () => {
    const { correlation_id } = await deadLetters(120);
    const all = await khala(["dlq", "replay-all", "picky", "--correlation", correlation_id]);
    expect(all).toEqual({ code: 0, out: "120 dead letters of picky replayed.\n", err: expect.any(String) });
    // Each fails once more.
    await buried(correlation_id, 240);
    using out = vi.spyOn(process.stdout, "write").mockReturnValue(true);
    const told: string[] = [];
    const options = {
      url: server.url,
      token: env.KHALA_TOKEN!,
      correlation: correlation_id,
      json: true,
    };
    await replayAllDeadLetters("picky", options, () => ({
      update: (text) => told.push(text()),
      [Symbol.dispose]() {},
    }));
    expect(told).toEqual(["100 replayed so far", "120 replayed so far", "120 replayed so far"]);
    const counts = { replayed: 120, already_replayed: 120, undecodable: 0 };
    expect(out.mock.calls).toEqual([[`${JSON.stringify(counts)}\n`]]);
  });
});

describe("without the scope", () => {
  withServer();
  const id = randomUUID();

  test.each([
    ["dlq", "list", "router"],
    ["dlq", "show", "router", id],
    ["dlq", "replay", "router", id],
    ["dlq", "replay-all", "router"],
  ])("khala %s %s %s needs platform", async (...args) => {
    const token = await server.token({ scopes: ["blackboard:read", "blackboard:write", "ops"] });
    const { code, out, err } = await khala([...args, "--token", token]);
    expect({ code, out }).toEqual({ code: 1, out: "" });
    expect(err).toContain('"platform"');
    expect(err).toContain("(missing_scope)");
  });

  test.each([
    [["agents"]],
    [["lag"]],
    [["artifacts"]],
    [["correlations"]],
    [["correlations", "pause", "c1"]],
    [["dlq", "list", "picky"]],
    [["dlq", "replay-all", "picky"]],
    [["audit"]],
    [["set-aside", "list"]],
    [["tail", "runtime.run_summaries"]],
    [["chat", "hello"]],
  ])("khala %j reports it, and fails", async (args) => {
    const token = await server.token({ scopes: ["nothing"] });
    const { code, out, err } = await khala([...args, "--token", token]);
    expect({ code, out }).toEqual({ code: 1, out: "" });
    expect(err).toMatch(/needs the scope|does not allow the topic/);
  });
});

describe("khala worker", () => {
  const file = join(ROOT, "packages/test-support/src/programs/board_app.ts");

  test("works for an app whose servers run no agents, and stops in order", async () => {
    await using own = await testDatabase();
    await using idle = await startBoard(own.url, { agents: app.agents }, { KHALA_BOARD_AGENTS: "false" });
    const child = start(["worker", "--app", file], { DATABASE_URL: own.url });
    const ended = once(child, "close");
    const correlation_id = randomUUID();
    await idle.publish({ type: "Draft", payload: {}, correlation_id });
    expect(await idle.correlation(correlation_id, "done")).toMatchObject({ artifacts: "2" });
    child.kill("SIGTERM");
    expect((await ended)[0]).toBe(0);
  });

  test("without a database or agents, says what to do", async () => {
    const none = await khala(["worker", "--app", file, "--data-dir", join(folder, "empty")]);
    expect(none).toMatchObject({ code: 2, err: expect.stringContaining("Set DATABASE_URL") });
  });
});
