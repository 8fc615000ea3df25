// npm run fuzz -- --minutes N --seed S: random requests, frames, tokens, cursors and page tokens against a server in a process
// of its own. Fails on a 5xx, on an accepted bad token, on an exception in an answer, on growing memory, and on an unclean end.
import { fork } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { seeded } from "../../packages/testing/src/kit/context.ts";
import { type Finding, type FuzzedRoute, fuzzHttp } from "./http_fuzz.ts";
import { type FuzzedChannel, fuzzSocket } from "./socket_fuzz.ts";
import { Tokens } from "./tokens.ts";
import { Values } from "./values.ts";

interface Started {
  readonly url: string;
  readonly routes: readonly FuzzedRoute[];
  readonly channels: readonly FuzzedChannel[];
}

interface Memory {
  readonly heap: number;
  readonly rss: number;
}

const IN_FLIGHT = 8;
/** Memory is compared with that after the first quarter, when caches and code are warm. */
const GROWTH = 1.5;
const GROWTH_BYTES = 64 << 20;

const { values: options } = parseArgs({ options: { minutes: { type: "string" }, seed: { type: "string" } } });
const minutes = Number(options.minutes ?? 1);
const seed = Number(options.seed ?? randomInt(2 ** 31));
console.log(`Fuzzing for ${minutes} minutes with --seed ${seed}`);

const folder = await mkdtemp(join(tmpdir(), "khala-fuzz-"));
const secret = randomBytes(32);
const server = fork(join(import.meta.dirname, "target.ts"), [], {
  execArgv: ["--conditions=khala-source", "--expose-gc"],
  stdio: ["ignore", "inherit", "inherit", "ipc"],
  env: {
    ...process.env,
    KHALA_PORT: "0",
    KHALA_DATA_DIR: folder,
    KHALA_LOG_LEVEL: "error",
    KHALA_AUTH_SECRETS: `fuzz:${secret.toString("base64")}`,
  },
});
const ended = once(server, "exit").then(([code]) => code as number | null);
const heard = async <T>(): Promise<T> => {
  const [message] = await Promise.race([
    once(server, "message"),
    ended.then((code) => Promise.reject(new Error(`The server ended with ${code}.`))),
  ]);
  return message as T;
};
const memory = (): Promise<Memory> => {
  server.send("memory");
  return heard<Memory>();
};

const findings: Finding[] = [];
const counts = { requests: 0, frames: 0 };
const { url, routes, channels } = await heard<Started>();
const began = Date.now();
const over = () =>
  Date.now() - began >= minutes * 60_000 || findings.length >= 20 || server.exitCode !== null;
const warm = new Promise<Memory>((resolve) =>
  setTimeout(() => void memory().then(resolve), minutes * 15_000),
);

await Promise.all(Array.from({ length: IN_FLIGHT }, (_, i) => fuzzUntilOver(seed + i)));

async function fuzzUntilOver(ownSeed: number): Promise<void> {
  const values = new Values(seeded(ownSeed));
  const tokens = new Tokens(values, secret);
  while (!over()) {
    if (values.chance(0.9)) {
      const finding = await fuzzHttp(url, routes, values, tokens);
      counts.requests++;
      if (finding) findings.push(finding);
    } else counts.frames += await fuzzSocket(url, channels, values, tokens);
  }
}

const before = await warm;
const after = server.exitCode === null ? await memory() : before;
const ready = await fetch(`${url}/readyz`).then(
  (response) => response.text(),
  (error: Error) => error.message,
);
server.kill("SIGTERM");
const code = await ended;
await rm(folder, { recursive: true, force: true });

if (code !== 0) findings.push({ what: `the server ended with ${code}`, input: "SIGTERM" });
if (after.heap > before.heap * GROWTH + GROWTH_BYTES)
  findings.push({ what: `the heap grew from ${before.heap} to ${after.heap} bytes`, input: "everything" });
for (const { what, input } of findings) console.error(`✗ ${what}\n  ${input}`);
const megabytes = ({ heap, rss }: Memory) =>
  `${(heap / 1e6).toFixed(0)} MB heap, ${(rss / 1e6).toFixed(0)} MB in all`;
console.log(
  `${counts.requests} requests, ${counts.frames} frames; memory ${megabytes(before)}, then ${megabytes(after)}`,
);
console.log(`readyz at the end: ${ready.slice(0, 300)}`);
console.log(`${findings.length} findings`);
process.exit(findings.length === 0 ? 0 : 1);
