import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { kafkaHere, sharedKafka } from "@khala/test-support/kafka/kafka";
import { JumpClock } from "@khala/test-support/kit/jump_clock";
import { until } from "@khala/test-support/kit/until";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import { type KhalaProcess, startKhala } from "@khala/test-support/processes/processes";
import { runCli as khala } from "@khala/test-support/processes/run_cli";
import { startConvexStandIn } from "@khala/test-support/servers/convex_stand_in";
import { RUNS, startServer, type TestServer } from "@khala/test-support/servers/servers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ROOT } from "../../scripts/run.ts";

const SECRETS = `k1:${Buffer.alloc(32, 1).toString("base64")}`;

let folder: string;
let store: TestDatabase;
const startedIn = process.cwd();
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-cli-"));
  store = await testDatabase();
  // The data folder of a command is relative to the folder that it is called in.
  process.chdir(folder);
});
afterAll(async () => {
  process.chdir(startedIn);
  await store[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

/** The settings of a command that talks to a server of this process. */
async function settingsFor(server: TestServer): Promise<Record<string, string>> {
  return { KHALA_URL: server.url, KHALA_TOKEN: await server.token() };
}

/** Follows a topic in a process of its own; `next` is the next change that it prints. */
function tail(args: readonly string[], env: Readonly<Record<string, string>>) {
  const command = ["--conditions=khala-source", join(ROOT, "packages/cli/src/main.ts"), "tail", "--json"];
  const child = spawn(process.execPath, [...command, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...bareEnv(), ...env },
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (chunk) => (errors += chunk));
  return {
    async next() {
      const { value, done } = await lines.next();
      if (done) throw new Error(`tail ended: ${errors}`);
      return JSON.parse(value) as object;
    },
    states: () => errors,
    async [Symbol.asyncDispose]() {
      child.kill("SIGINT");
      if (child.exitCode === null) await once(child, "exit");
      expect(child.exitCode).toBe(0);
    },
  };
}

/** Pastes the commands that a server has printed. */
async function tryWhatItPrints(server: KhalaProcess): Promise<void> {
  await expect.poll(() => server.output(), { timeout: 60_000 }).toContain("Ctrl-C stops it");
  const lines = server
    .output()
    .split("\n")
    .map((line) => line.trim());
  const token = lines.find((line) => line.startsWith("export TOKEN="));
  const commands = lines.filter((line) => line.startsWith("curl "));
  // Two for each plane that the app uses.
  const planes = ["Append an event", "Send a message", "Publish an artifact"];
  expect(commands).toHaveLength(planes.filter((plane) => server.output().includes(plane)).length * 2);
  const script = commands.map((command) => `${command} -f`).join("\n");
  const shell = spawn("bash", ["-c", `set -e\n${token}\n${script}`], { stdio: "ignore" });
  expect((await once(shell, "exit"))[0], script).toBe(0);
}

describe("khala dev", () => {
  let server: KhalaProcess;
  let env: Record<string, string>;
  beforeAll(async () => {
    const KHALA_DATA_DIR = join(folder, "dev");
    server = await startKhala({ command: "dev", args: ["--no-activity"], env: { KHALA_DATA_DIR } });
    env = { KHALA_DATA_DIR, KHALA_URL: server.url, KHALA_PORT: new URL(server.url).port };
  });
  afterAll(async () => expect(await server.end("SIGINT"), server.output()).toBe(0));

  test("the printed commands work when they are pasted", () => tryWhatItPrints(server));

  test("accepts a token signed with its key", async () => {
    const { code, out } = await khala(["token", "--sub", "ada", "--org", "acme"], env);
    expect(code).toBe(0);
    const headers = { Authorization: `Bearer ${out.trim()}` };
    const answer = await fetch(`${server.url}/sync/v1/list/lightning.control_plane`, { headers });
    expect(await answer.json()).toMatchObject({ documents: [], next: null });
  });

  test("chat prints the answer, continues the conversation, and sets an exit code by the run's end", async () => {
    const first = await khala(
      ["chat", "--conv", "cli-test", "How", "is", "the", "weather", "in", "Oslo?"],
      env,
    );
    expect(first).toMatchObject({ code: 0, out: expect.stringContaining("Oslo") });
    const second = await khala(["chat", "--conv", "cli-test", "--json", "And the weather in Bergen?"], env);
    expect(JSON.parse(second.out)).toMatchObject({
      status: "finished",
      text: expect.stringContaining("Bergen"),
    });
  });

  test("chat without a name has a conversation for each person", async () => {
    for (const sub of ["ada", "ben", "ada"]) {
      const { out: token } = await khala(["token", "--sub", sub, "--org", "acme", "--scope", "chat"], env);
      // As JSON: streamed text of a second chat in one process is not captured here.
      const answer = await khala(
        ["chat", "--json", "--token", token.trim(), "How is the weather in Oslo?"],
        env,
      );
      expect(JSON.parse(answer.out)).toMatchObject({
        status: "finished",
        text: expect.stringContaining("Oslo"),
      });
    }
    const remembered = JSON.parse(await readFile(join(env.KHALA_DATA_DIR!, "chat.json"), "utf8"));
    expect(new Set(Object.values(remembered)).size).toBe(2);
  });

  test("doctor finds no problem", async () => {
    const { code, out } = await khala(["doctor", "--json"], env);
    const findings = JSON.parse(out) as { check: string; state: string }[];
    expect(findings.filter(({ state }) => state === "problem")).toEqual([]);
    expect(findings.map(({ check }) => check)).toEqual(
      expect.arrayContaining(["database", "schema", "clock", "keys"]),
    );
    expect(code).toBe(0);
  });
});

test("khala dev serves a custom app, and prints commands that fit it", async () => {
  const args = ["--app", join(ROOT, "examples/tasks/app.ts")];
  const env = { DATABASE_URL: store.url, KHALA_DATA_DIR: join(folder, "tasks") };
  await using server = await startKhala({ command: "dev", args, env });
  await tryWhatItPrints(server);
  expect(server.output()).toContain("tail tasks.open_tasks");
  expect(await server.end("SIGTERM")).toBe(0);
});

test("npm start passes SIGTERM on, and the server stops", async () => {
  const env = { ...bareEnv(), DATABASE_URL: store.url, KHALA_DATA_DIR: join(folder, "npm"), KHALA_PORT: "0" };
  const npm = spawn("npm", ["start"], { cwd: ROOT, env, stdio: ["ignore", "pipe", "ignore"] });
  const lines = createInterface({ input: npm.stdout });
  const url = await new Promise<string>((resolve) => {
    lines.on("line", (line) => {
      const found = /ready at (\S+)/.exec(line);
      if (found) resolve(found[1]!);
    });
  });
  npm.kill("SIGTERM");
  await expect.poll(() => fetch(url).then(String, () => "gone"), { timeout: 60_000 }).toBe("gone");
});

describe("commands for a running server", () => {
  let server: TestServer;
  let env: Record<string, string>;
  beforeAll(async () => {
    server = await startServer(store.url);
    env = await settingsFor(server);
  });
  afterAll(() => server[Symbol.asyncDispose]());

  test("tail prints the document that append made, then each change of it once", async () => {
    expect(await khala(["append", "run", "r1", "run.started", '{"title":"One"}'], env)).toMatchObject({
      code: 0,
      out: "run r1 is at sequence 1.\n",
    });
    await using follower = tail([RUNS, "--from", "oldest"], env);
    expect(await follower.next()).toMatchObject({ doc_key: "run:r1", doc_version: "1" });
    await khala(["append", "run", "r1", "run.started", '{"title":"Two"}'], env);
    expect(await follower.next()).toMatchObject({ doc_version: "2", payload: { title: "Two" } });
    await khala(["append", "run", "r1", "run.deleted"], env);
    expect(await follower.next()).toMatchObject({ doc_key: "run:r1", doc_version: "3", op: "delete" });
  });

  test("append prints the server's refusal", async () => {
    const unknown = await khala(["append", "run", "r1", "run.exploded"], env);
    expect(unknown).toMatchObject({
      code: 1,
      err: expect.stringContaining('"run.exploded" is not an event type'),
    });
    const late = await khala(["append", "run", "r1", "run.started", "--expected-seq", "0"], env);
    expect(late).toMatchObject({ code: 1, err: expect.stringContaining("sequence_conflict") });
    expect(await khala(["append", "run", "r1", "run.step", "{"], env)).toMatchObject({ code: 2 });
  });

  test("tail ends when the token does not allow the topic", async () => {
    const token = await server.token({ scopes: ["ops"] });
    for (const from of ["list", "now"]) {
      const refused = await khala(["tail", RUNS, "--from", from, "--token", token], env);
      expect(refused).toMatchObject({ code: 1, err: expect.stringContaining("forbidden_topic") });
    }
  });

  test("tail ends when its token expires", async () => {
    const clock = new JumpClock();
    await using other = await startServer(store.url, { clock });
    const ended = khala(["tail", RUNS, "--from", "now"], await settingsFor(other));
    await until("it follows", () => other.khala.watched());
    clock.jump(3_600_000);
    expect(await ended).toMatchObject({ code: 1, err: expect.stringContaining("The token has expired.") });
  });

  test("reproject and retention work beside a running server", async () => {
    const own = { DATABASE_URL: store.url, KHALA_AUTH_SECRETS: SECRETS };
    expect(await khala(["reproject", RUNS], own)).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^runtime\.run_summaries: \d+ documents compared, 0 differed/),
    });
    for (const args of [[], ["--dry-run"]]) {
      const { code, out } = await khala(["retention", "--json", ...args], own);
      expect(JSON.parse(out)).toMatchObject({ [RUNS]: 0, conversations: { conversations: 0 } });
      expect(code).toBe(0);
    }
    expect(await khala(["reproject", "no.topic"], own)).toMatchObject({ code: 1 });
    expect(await khala(["parity"], own)).toMatchObject({ code: 2 });
  });
});

test("tail continues after a restart of khala serve, and lists again when its cursor is stale", async () => {
  await using database = await testDatabase();
  const settings = { DATABASE_URL: database.url, KHALA_AUTH_SECRETS: SECRETS };
  await using first = await startKhala({ command: "serve", env: settings });
  const { port } = new URL(first.url);
  const KHALA_TOKEN = (await khala(["token", "--scope", RUNS, "runtime:write"], settings)).out.trim();
  const env = { ...settings, KHALA_URL: first.url, KHALA_PORT: port, KHALA_TOKEN };
  const append = async (title: string) => {
    const appended = await khala(["append", "run", title, "run.started", JSON.stringify({ title })], env);
    expect(appended.err).toBe("");
  };
  await append("before");
  await using follower = tail([RUNS], env);
  expect(await follower.next()).toMatchObject({ doc_key: "run:before" });

  expect(await first.end("SIGTERM")).toBe(0);
  await using _second = await startServer(database.url, {
    settings: { KHALA_PORT: port, KHALA_AUTH_SECRETS: SECRETS },
  });
  await append("after");
  expect(await follower.next()).toMatchObject({ doc_key: "run:after" });

  expect(await khala(["epoch", "rotate"], env)).toMatchObject({ code: 2 });
  expect(await khala(["epoch", "rotate", "--yes"], env)).toMatchObject({ code: 0 });
  await until("the cursor is stale", () => follower.states().includes("stale"));
  await append("rotated");
  expect(await follower.next()).toMatchObject({ doc_key: "run:rotated" });
});

test("parity succeeds while the mirror has the same documents, and names a different one", async () => {
  await using database = await testDatabase();
  await using convex = await startConvexStandIn();
  const mirror = { KHALA_MIRROR: "convex", CONVEX_URL: convex.url };
  await using server = await startServer(database.url, { settings: mirror });
  const env = { ...mirror, DATABASE_URL: database.url, ...(await settingsFor(server)) };
  expect(await khala(["append", "run", "r1", "run.started", '{"title":"Hi"}'], env)).toMatchObject({
    code: 0,
  });
  const held = convex.topic(RUNS);
  const key = "org-1 run:r1";
  await until("the mirror has the document", () => held.has(key));
  expect(await khala(["parity", RUNS], env)).toMatchObject({ code: 0 });
  held.set(key, { ...held.get(key)!, payload_hash: "00".repeat(32) });
  const { code, out } = await khala(["parity", RUNS], env);
  expect(out).toContain("run:r1");
  expect(code).toBe(4);
});

describe("the command line", () => {
  test("--help lists every command, and an unknown one is a usage error", async () => {
    const { code, out } = await khala(["--help"]);
    expect(code).toBe(0);
    for (const command of [
      "dev",
      "serve",
      "token",
      "append",
      "tail",
      "publish",
      "artifacts",
      "correlations",
      "approvals",
      "agents",
      "lag",
      "dlq",
      "set-aside",
      "worker",
      "mcp",
      "audit",
      "erase",
      "quotas",
      "config",
      "doctor",
      "init",
      "chat",
      "completion",
      "reproject",
      "retention",
      "backup",
      "restore",
      "migrate",
      "parity",
    ])
      expect(out).toMatch(new RegExp(`^  ${command} `, "m"));
    expect(await khala(["broadcast"])).toMatchObject({
      code: 2,
      err: expect.stringContaining("unknown command"),
    });
    expect(await khala(["dev", "--port", "99999"])).toMatchObject({ code: 2 });
  });

  test("serve refuses to start without keys", async () => {
    const { code, err } = await khala(["serve"]);
    expect(err).toMatch(/^khala: `khala serve` needs keys: set KHALA_AUTH_SECRETS/);
    expect(code).toBe(2);
  });

  test("an error is one line, and has its stack with --verbose", async () => {
    const env = { KHALA_URL: "http://127.0.0.1:1" };
    const brief = await khala(["tail", RUNS], env);
    expect(brief).toMatchObject({
      code: 3,
      err: expect.stringMatching(/^khala: No server answers at .*\n$/),
    });
    expect((await khala(["--verbose", "tail", RUNS], env)).err).toContain("    at ");
  });

  test("config masks secrets, and marks settings that differ from their default", async () => {
    const env = { KHALA_AUTH_SECRETS: SECRETS, DATABASE_URL: "postgres://u:hidden@db/k" };
    const { out } = await khala(["config", "--json", "--port", "5000"], env);
    expect(out).not.toContain("hidden");
    expect(out).not.toContain(SECRETS);
    const settings = JSON.parse(out) as {
      name: string;
      value: unknown;
      default?: unknown;
      changed: boolean;
    }[];
    expect(settings.find(({ name }) => name === "KHALA_PORT")).toMatchObject({
      value: 5000,
      default: "4000",
    });
    expect(settings.filter(({ changed }) => changed).map(({ name }) => name)).toEqual([
      "KHALA_PORT",
      "DATABASE_URL",
      "KHALA_AUTH_SECRETS",
    ]);
  });

  test("doctor names each problem and how to fix it", async () => {
    const env = {
      DATABASE_URL: "postgres://127.0.0.1:1/none",
      REDIS_URL: "redis://:sesame@127.0.0.1:1",
      KAFKA_BOOTSTRAP_SERVERS: "127.0.0.1:1",
      KHALA_AUTH_JWKS_FILE: "no-such-keys.json",
    };
    const { code, out } = await khala(["doctor", "--json", "--port", "0"], env);
    const problems = (JSON.parse(out) as { check: string; state: string; fix: string }[]).filter(
      ({ state }) => state === "problem",
    );
    expect(problems.map(({ check }) => check)).toEqual(["database", "Redis", "Kafka", "keys"]);
    expect(out).not.toContain("sesame");
    expect(problems.every(({ fix }) => fix.length > 0)).toBe(true);
    expect(code).toBe(4);
  });

  test.runIf(kafkaHere())("doctor reports whether Kafka accepts the login, and if not, why", async () => {
    const env = {
      DATABASE_URL: "postgres://127.0.0.1:1/none",
      KAFKA_BOOTSTRAP_SERVERS: await sharedKafka(),
      KHALA_AUTH_SECRETS: SECRETS,
    };
    const kafka = async (more: Record<string, string> = {}) => {
      const { out } = await khala(["doctor", "--json", "--port", "0"], { ...env, ...more });
      expect(out).not.toContain("sesame");
      return (JSON.parse(out) as { check: string }[]).find(({ check }) => check === "Kafka");
    };
    expect(await kafka()).toMatchObject({ state: "ok" });
    const password = {
      KAFKA_SASL_MECHANISM: "plain",
      KAFKA_SASL_USERNAME: "ann",
      KAFKA_SASL_PASSWORD: "sesame",
    };
    expect(await kafka(password)).toMatchObject({
      state: "problem",
      detail: expect.stringMatching(/SASL/),
      fix: expect.stringContaining("KAFKA_SASL_*"),
    });
  });

  test("refuses an app file without an app, and says what it needs", async () => {
    expect(await khala(["dev", "--app", "missing.ts"])).toMatchObject({ code: 2 });
    const { code, err } = await khala(["token", "--app", join(ROOT, "scripts/run.ts")]);
    expect(err).toContain("needs `export default defineApp(");
    expect(code).toBe(1);
  });
});
