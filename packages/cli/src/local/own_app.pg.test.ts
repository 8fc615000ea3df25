import { spawn } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { bareEnv } from "@khala/test-support/processes/bare_env";
import { startKhala } from "@khala/test-support/processes/processes";
import { runCli } from "@khala/test-support/processes/run_cli";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ROOT } from "../../../../scripts/run.ts";
import { createIssuer } from "../../../server/src/gateway/auth/issuer.ts";
import { systemClock } from "../../../server/src/kit/clock.ts";

const SERVER = join(ROOT, "packages/server/src/index.ts");
const ENGINES = join(ROOT, "packages/server/src/engines.ts");

let folder: string;
let store: TestDatabase;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-own-app-"));
  store = await testDatabase();
});
afterAll(async () => {
  await store[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

/** Serves an app whose file has this definition. */
async function serve(
  name: string,
  definition: string,
  env: Record<string, string> = {},
  args: readonly string[] = [],
) {
  const file = join(folder, `${name}.ts`);
  const imports = `import { defineApp } from "${SERVER}";\nimport { scripted } from "${ENGINES}";\n`;
  await writeFile(file, `${imports}export const engines = [scripted];\nexport default ${definition};\n`);
  const settings = { DATABASE_URL: store.url, KHALA_DATA_DIR: join(folder, name) };
  const server = await startKhala({
    command: "dev",
    args: ["--app", file, ...args],
    env: { ...settings, ...env },
  });
  await expect.poll(() => server.output(), { timeout: 60_000 }).toContain("Ctrl-C stops it");
  return { server, file, env: { ...settings, KHALA_URL: server.url } };
}

/** Runs a command in a process of its own, with this input. */
async function khala(args: readonly string[], input: string, env: Record<string, string>) {
  const command = ["--conditions=khala-source", join(ROOT, "packages/cli/src/main.ts"), ...args];
  const child = spawn(process.execPath, command, { env: { ...bareEnv(), ...env } });
  child.stdin.end(input);
  const [out, err, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "exit") as Promise<[number | null]>,
  ]);
  return { code, out, err };
}

test("chat answers every line of a pipe, and accepts an empty input", async () => {
  const { server, env } = await serve("talk", "defineApp({ engine: scripted() })");
  await using _ = server;
  const answered = await khala(["chat", "--json"], "one\n\ntwo\nthree\n", env);
  expect(answered.code, answered.err).toBe(0);
  const answers = answered.out
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { status: string });
  expect(answers.map(({ status }) => status)).toEqual(["finished", "finished", "finished"]);

  expect(await khala(["chat"], "", env)).toMatchObject({ code: 0, out: "" });
});

test("chat reports an expired token", async () => {
  const secret = randomBytes(32);
  const { server, env } = await serve("expired", "defineApp({ engine: scripted() })", {
    KHALA_AUTH_SECRETS: `k1:${secret.toString("base64")}`,
  });
  await using _ = server;
  const clock = { ...systemClock, now: () => Date.now() - 3_600_000 };
  const issuer = createIssuer({ kid: "k1", secret, clock, newId: randomUUID });
  const { token } = await issuer.mint({ sub: "ada", org_id: "acme", scopes: ["chat"], ttl_s: 60 });
  for (const [args, input] of [
    [["hello"], ""],
    [[], "hello\n"],
  ] as const) {
    const ended = await khala(["chat", "--token", token, ...args], input, env);
    expect(ended).toMatchObject({ code: 1, err: expect.stringContaining("The token has expired.") });
    expect(ended.err).not.toContain("unsettled");
  }
});

test("serves an app without models, with commands that fit it", async () => {
  const { server, env } = await serve("empty", "defineApp({})", { KHALA_PROT: "1" });
  await using _ = server;
  expect(server.output()).not.toMatch(/undefined|readyz/);
  expect(server.output()).toContain("The app is empty");
  // A warning for people, not JSON.
  expect(server.output()).toMatch(/warn +KHALA_PROT is not a setting.*KHALA_PORT\?/);
  expect(server.output()).not.toMatch(/^\{/m);

  // A token of the app that the folder has, and not of the demo.
  const { out } = await runCli(["token"], env);
  const claims = Buffer.from(out.split(".")[1]!, "base64url").toString();
  expect(claims).toContain('"chat"');
  expect(claims).not.toContain("run_summaries");
  expect(JSON.parse(await readFile(join(env.KHALA_DATA_DIR, "app.json"), "utf8"))).toMatchObject({
    topics: [],
  });
});

test("dev --watch reads a changed app, also after one that cannot be loaded", async () => {
  const { server, file } = await serve("watched", "defineApp({})", {}, ["--watch"]);
  await using _ = server;
  const source = await readFile(file, "utf8");
  await writeFile(file, "export default {{;");
  await expect.poll(() => server.output(), { timeout: 60_000 }).toContain("Waiting for file changes");
  expect(server.output()).toContain("cannot be loaded");
  await writeFile(file, source.replace("defineApp({})", "defineApp({ engine: scripted() })"));
  await expect.poll(() => server.output(), { timeout: 60_000 }).toContain("Send a message");
  expect(await server.end("SIGTERM")).toBe(0);
});

test("doctor warns of an unknown setting", async () => {
  const { out, code } = await runCli(["doctor", "--json", "--port", "0"], {
    KHALA_PROT: "1",
    DATABASE_URL: store.url,
    KHALA_DATA_DIR: folder,
  });
  const findings = JSON.parse(out) as { check: string; state: string; fix?: string }[];
  expect(findings.find(({ check }) => check === "settings")).toMatchObject({
    state: "warning",
    fix: "Did you mean KHALA_PORT?",
  });
  expect(code).toBe(0);
});
