import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { kafkaHere, sharedKafka } from "@khala/testing/kafka/kafka";
import { testDatabase } from "@khala/testing/postgres/test_database";
import { type KhalaProcess, startKhala } from "@khala/testing/processes/processes";
import { startConvexStandIn } from "@khala/testing/servers/convex_stand_in";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ROOT } from "../../scripts/run.ts";

const SECRETS = `k1:${Buffer.alloc(32, 1).toString("base64")}`;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-cli-"));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

function start(args: readonly string[], env: Record<string, string> = {}) {
  const command = ["--conditions=khala-source", join(ROOT, "packages/cli/src/main.ts"), ...args];
  const { PATH = "", HOME = "" } = process.env;
  return spawn(process.execPath, command, {
    cwd: folder,
    stdio: ["ignore", "pipe", "pipe"],
    env: { PATH, HOME, ...env },
  });
}

/** Runs a command to its end. */
async function khala(args: readonly string[], env: Record<string, string> = {}) {
  const child = start(args, env);
  const text = { out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (chunk) => (text.out += chunk));
  child.stderr.setEncoding("utf8").on("data", (chunk) => (text.err += chunk));
  const [code] = await once(child, "close");
  return { code, ...text };
}

/** Follows a topic; `next` is the next line of its output. */
function tail(args: readonly string[], env: Record<string, string>) {
  const child = start(["tail", ...args, "--json"], env);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (chunk) => (errors += chunk));
  return {
    async next() {
      const { value, done } = await lines.next();
      if (done) throw new Error(`tail ended: ${errors}`);
      return JSON.parse(value) as {
        doc_key: string;
        doc_version: string;
        op: string;
        payload?: { title?: string };
      };
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
  // Two to append and read, two to talk, and two to publish where there are agents.
  expect(commands).toHaveLength(server.output().includes("Publish an artifact") ? 6 : 4);
  for (const command of commands) {
    const shell = spawn("bash", ["-c", `set -e\n${token}\n${command} -f`], { stdio: "ignore" });
    expect((await once(shell, "exit"))[0], command).toBe(0);
  }
}

describe("khala dev", () => {
  let server: KhalaProcess;
  let env: Record<string, string>;
  beforeAll(async () => {
    const KHALA_DATA_DIR = join(folder, "dev");
    server = await startKhala({ command: "dev", args: ["--no-activity"], env: { KHALA_DATA_DIR } });
    env = { KHALA_DATA_DIR, KHALA_URL: server.url, KHALA_PORT: new URL(server.url).port };
  });
  afterAll(() => server[Symbol.asyncDispose]());

  test("what it prints works when it is pasted", () => tryWhatItPrints(server));

  test("a token that is signed here is accepted there", async () => {
    const { code, out } = await khala(["token", "--sub", "ada", "--org", "acme"], env);
    expect(code).toBe(0);
    const headers = { Authorization: `Bearer ${out.trim()}` };
    const answer = await fetch(`${server.url}/sync/v1/list/lightning.control_plane`, { headers });
    expect(await answer.json()).toMatchObject({ documents: [], next: null });
  });

  test("a second start on its port or its folder is one clear line", async () => {
    const port = await khala(["dev", "--data-dir", join(folder, "other")], env);
    expect(port).toMatchObject({ code: 1, out: "" });
    expect(port.err).toContain(`khala: Port ${env.KHALA_PORT} on 127.0.0.1 is in use.`);
    const data = await khala(["dev", "--port", "0"], env);
    expect(data).toMatchObject({ code: 1, out: "" });
    expect(data.err).toMatch(/^khala: The data folder .* is in use by the process \d+\. .*\n$/);
  });

  test("chat prints the answer, goes on in the same conversation, and tells scripts how it ended", async () => {
    const first = await khala(["chat", "--conv", "cli-test", "How", "is", "Oslo?"], env);
    expect(first).toMatchObject({ code: 0, out: expect.stringContaining("Oslo") });
    const second = await khala(["chat", "--conv", "cli-test", "--json", "And Bergen?"], env);
    expect(JSON.parse(second.out)).toMatchObject({
      status: "finished",
      text: expect.stringContaining("Bergen"),
    });
  });

  test("append and tail meet: a document is told once, at first as it is, then with every change", async () => {
    expect(await khala(["append", "run", "r1", "run.started", '{"title":"One"}'], env)).toMatchObject({
      code: 0,
      out: "run r1 is at sequence 1.\n",
    });
    await using follower = tail(["runtime.run_summaries", "--from", "oldest"], env);
    const seen = [];
    do seen.push(await follower.next());
    while (seen.at(-1)!.doc_key !== "run:r1");
    await khala(["append", "run", "r1", "run.started", '{"title":"Two"}'], env);
    expect(await follower.next()).toMatchObject({
      doc_key: "run:r1",
      doc_version: "2",
      payload: { title: "Two" },
    });
    await khala(["append", "run", "r1", "run.deleted"], env);
    expect(await follower.next()).toMatchObject({ doc_key: "run:r1", doc_version: "3", op: "delete" });
  });

  test("an event that is refused is told in the server's words", async () => {
    const unknown = await khala(["append", "run", "r1", "run.exploded"], env);
    expect(unknown).toMatchObject({
      code: 1,
      err: expect.stringContaining('"run.exploded" is not an event type'),
    });
    const late = await khala(["append", "run", "r1", "run.started", "--expected-seq", "0"], env);
    expect(late).toMatchObject({ code: 1, err: expect.stringContaining("sequence_conflict") });
    expect(await khala(["append", "run", "r1", "run.step", "{"], env)).toMatchObject({ code: 2 });
  });

  test("a topic that the token does not allow ends the tail instead of trying for ever", async () => {
    const token = (await khala(["token", "--scope", "ops"], env)).out.trim();
    for (const from of ["list", "now"]) {
      const refused = await khala(["tail", "runtime.run_summaries", "--from", from, "--token", token], env);
      expect(refused).toMatchObject({ code: 1, err: expect.stringContaining("forbidden_topic") });
    }
  });

  test("a tail whose token runs out says so and ends", async () => {
    const brief = { ...env, KHALA_AUTH_MIN_TTL_S: "1" };
    const token = (await khala(["token", "--ttl", "3"], brief)).out.trim();
    const ended = await khala(["tail", "runtime.run_summaries", "--from", "now", "--token", token], env);
    expect(ended).toMatchObject({ code: 1, err: expect.stringContaining("The token has expired.") });
  });

  test("doctor finds it well", async () => {
    const { code, out } = await khala(["doctor", "--json"], env);
    const findings = JSON.parse(out) as { check: string; state: string }[];
    expect(findings.filter(({ state }) => state === "problem")).toEqual([]);
    expect(findings.map(({ check }) => check)).toEqual(
      expect.arrayContaining(["database", "schema", "clock", "keys"]),
    );
    expect(code).toBe(0);
  });
});

test("an app of one's own is served, with commands to try that fit it", async () => {
  const args = ["--app", join(ROOT, "examples/tasks/app.ts")];
  await using server = await startKhala({
    command: "dev",
    args,
    env: { KHALA_DATA_DIR: join(folder, "tasks") },
  });
  await tryWhatItPrints(server);
  expect(server.output()).toContain("tail tasks.open_tasks");
  expect(await server.end("SIGTERM")).toBe(0);
});

test("SIGINT and SIGTERM stop it in order, also through npm, and it starts again on what it left", async () => {
  const KHALA_DATA_DIR = join(folder, "stopped");
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    const server = await startKhala({ command: "dev", args: ["--no-activity"], env: { KHALA_DATA_DIR } });
    expect(await server.end(signal)).toBe(0);
  }
  const env = { ...process.env, KHALA_DATA_DIR, KHALA_PORT: "0" };
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

describe("khala serve", () => {
  test("it refuses to start without keys", async () => {
    const { code, err } = await khala(["serve"]);
    expect(err).toMatch(/^khala: `khala serve` needs keys: set KHALA_AUTH_SECRETS/);
    expect(code).toBe(2);
  });

  test("a tail goes on through a restart, and lists anew when the cursor is stale", async () => {
    await using database = await testDatabase();
    const settings = { DATABASE_URL: database.url, KHALA_AUTH_SECRETS: SECRETS };
    await using first = await startKhala({ command: "serve", env: settings });
    const env = { ...settings, KHALA_URL: first.url, KHALA_PORT: new URL(first.url).port };
    const KHALA_TOKEN = (await khala(["token"], env)).out.trim();
    const append = async (title: string) => {
      const data = JSON.stringify({ title });
      expect((await khala(["append", "run", title, "run.started", data], { ...env, KHALA_TOKEN })).err).toBe(
        "",
      );
    };
    await append("before");
    await using follower = tail(["runtime.run_summaries"], { ...env, KHALA_TOKEN });
    expect(await follower.next()).toMatchObject({ doc_key: "run:before" });

    expect(await first.end("SIGTERM")).toBe(0);
    await using _second = await startKhala({ command: "serve", env });
    await append("after");
    expect(await follower.next()).toMatchObject({ doc_key: "run:after" });

    expect(await khala(["epoch", "rotate"], env)).toMatchObject({ code: 2 });
    expect(await khala(["epoch", "rotate", "--yes"], env)).toMatchObject({ code: 0 });
    await expect.poll(follower.states, { timeout: 60_000 }).toContain("stale");
    await append("anew");
    expect(await follower.next()).toMatchObject({ doc_key: "run:anew" });
  });

  test("reproject and retention work beside a running server", async () => {
    await using database = await testDatabase();
    const env = { DATABASE_URL: database.url, KHALA_AUTH_SECRETS: SECRETS };
    await using _server = await startKhala({ command: "serve", env });
    expect(await khala(["reproject", "runtime.run_summaries"], env)).toMatchObject({
      code: 0,
      out: "runtime.run_summaries: 0 documents compared, 0 differed and were re-emitted.\n",
    });
    for (const args of [[], ["--dry-run"]]) {
      const { code, out } = await khala(["retention", "--json", ...args], env);
      expect(JSON.parse(out)).toMatchObject({
        "runtime.run_summaries": 0,
        conversations: { conversations: 0 },
      });
      expect(code).toBe(0);
    }
    expect(await khala(["reproject", "no.topic"], env)).toMatchObject({ code: 1 });
    expect(await khala(["parity"], env)).toMatchObject({ code: 2 });
  });

  test("parity is silent while the second sink holds the same, and names the document that differs", async () => {
    await using database = await testDatabase();
    await using convex = await startConvexStandIn();
    const env = {
      DATABASE_URL: database.url,
      KHALA_AUTH_SECRETS: SECRETS,
      KHALA_SECOND_SINK: "convex",
      CONVEX_URL: convex.url,
    };
    await using server = await startKhala({ command: "serve", env });
    const { out: token } = await khala(["token"], env);
    const own = { ...env, KHALA_URL: server.url, KHALA_TOKEN: token.trim() };
    expect(await khala(["append", "run", "r1", "run.started", '{"title":"Hi"}'], own)).toMatchObject({
      code: 0,
    });
    const held = convex.topic("runtime.run_summaries");
    await expect.poll(() => held.has("run:r1"), { timeout: 60_000 }).toBe(true);
    expect(await khala(["parity"], env)).toMatchObject({ code: 0 });
    held.set("run:r1", { ...held.get("run:r1")!, payload_hash: "00".repeat(32) });
    const { code, out } = await khala(["parity"], env);
    expect(out).toContain("run:r1");
    expect(code).toBe(4);
  });
});

describe("the command line", () => {
  test("--help lists every command, and a wrong one is a usage error", async () => {
    const { code, out } = await khala(["--help"]);
    expect(code).toBe(0);
    for (const command of [
      "dev",
      "serve",
      "token",
      "append",
      "tail",
      "publish",
      "agents",
      "dlq",
      "worker",
      "config",
      "doctor",
      "init",
      "chat",
      "completion",
      "reproject",
      "retention",
    ])
      expect(out).toMatch(new RegExp(`^  ${command} `, "m"));
    expect(await khala(["broadcast"])).toMatchObject({
      code: 2,
      err: expect.stringContaining("unknown command"),
    });
    expect(await khala(["dev", "--port", "99999"])).toMatchObject({ code: 2 });
  });

  test("an error is one line, and a stack only for those who ask", async () => {
    const env = { KHALA_URL: "http://127.0.0.1:1" };
    const brief = await khala(["tail", "runtime.run_summaries"], env);
    expect(brief).toMatchObject({
      code: 3,
      err: expect.stringMatching(/^khala: No server answers at .*\n$/),
    });
    expect((await khala(["--verbose", "tail", "runtime.run_summaries"], env)).err).toContain("    at ");
  });

  test("config masks secrets, and says what differs from its default", async () => {
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

  test("doctor names what is wrong and how to mend it", async () => {
    const env = {
      DATABASE_URL: "postgres://127.0.0.1:1/none",
      REDIS_URL: "redis://:sesame@127.0.0.1:1",
      KAFKA_BOOTSTRAP_SERVERS: "127.0.0.1:1",
      KHALA_AUTH_SECRETS: "k1:short",
    };
    const { code, out } = await khala(["doctor", "--json", "--port", "0"], env);
    const problems = (JSON.parse(out) as { check: string; state: string; mend: string }[]).filter(
      ({ state }) => state === "problem",
    );
    expect(problems.map(({ check }) => check)).toEqual(["database", "Redis", "Kafka", "keys"]);
    expect(out).not.toContain("sesame");
    for (const { mend } of problems) expect(mend).not.toBe("");
    expect(code).toBe(4);
  });

  test.runIf(kafkaHere())("doctor says whether Kafka lets it in, and if not, why", async () => {
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
      mend: expect.stringContaining("KAFKA_SASL_*"),
    });
  });

  test("an app that is none is refused with what it needs", async () => {
    expect(await khala(["dev", "--app", "missing.ts"])).toMatchObject({ code: 2 });
    const { code, err } = await khala(["token", "--app", join(ROOT, "scripts/run.ts")]);
    expect(err).toContain("needs `export default defineApp(");
    expect(code).toBe(1);
  });
});
