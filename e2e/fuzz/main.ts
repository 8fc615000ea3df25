// npm run fuzz -- --minutes N --seed S: random requests, frames, tokens, cursors, page tokens and Kafka records against a server
// on PostgreSQL and one on Redis and Kafka, each in a process of its own. Fails on a 5xx, on an accepted bad token, on an exception
// in an answer, on growing memory, on processes that are left, on an unclean end, and when good work does not get through at the end.
import { randomBytes, randomInt } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";
import { kafka } from "../../packages/test-support/src/kafka/service.ts";
import { seeded } from "../../packages/test-support/src/kit/context.ts";
import { redis } from "../../packages/test-support/src/redis/service.ts";
import { startServices } from "../../packages/test-support/src/services/services.ts";
import { checkGoodWork } from "./good_work.ts";
import { type Finding, fuzzHttp } from "./http_fuzz.ts";
import { type FuzzedRecords, fuzzRecords } from "./record_fuzz.ts";
import { type FuzzedServer, type Memory, startFuzzedServer } from "./server.ts";
import { fuzzSocket } from "./socket_fuzz.ts";
import { ORGS, Tokens } from "./tokens.ts";
import { Values } from "./values.ts";

const IN_FLIGHT = 8;
const MAX_FINDINGS = 20;
const PREFIX = "fuzz.";
/** Memory is compared with that after the first quarter, when caches and code are warm. */
const GROWTH = 1.5;
const GROWTH_BYTES = 64 << 20;

const { values: options } = parseArgs({
  options: { minutes: { type: "string" }, seed: { type: "string" }, help: { type: "boolean" } },
});
if (options.help) {
  console.log("Usage: npm run fuzz -- [--minutes <n>] [--seed <n>]");
  process.exit(0);
}
const minutes = Number(options.minutes ?? 1);
const seed = Number(options.seed ?? randomInt(2 ** 31));
console.log(`Fuzzing for ${minutes} minutes with --seed ${seed}`);

const findings: Finding[] = [];
const services = await startServices([redis(), kafka()]);
try {
  await fuzzAll();
} finally {
  await services.stop();
}
for (const { what, input } of findings) console.error(`✗ ${what}\n  ${input}`);
console.log(`${findings.length} findings`);
process.exit(findings.length === 0 ? 0 : 1);

async function fuzzAll(): Promise<void> {
  const secret = randomBytes(32);
  const targets = [fuzzServer(await startFuzzedServer("PostgreSQL", secret, {}), secret)];
  const { REDIS_URL = "" } = services.running.get("redis")?.env ?? {};
  const { LOOKUP } = services.running.get("kafka")?.env ?? {};
  if (REDIS_URL && LOOKUP) {
    const bootstrap = await (await fetch(`${LOOKUP}/shared`)).text();
    const env = { REDIS_URL, KAFKA_BOOTSTRAP_SERVERS: bootstrap, KAFKA_TOPIC_PREFIX: PREFIX };
    const server = await startFuzzedServer("Redis and Kafka", secret, env);
    targets.push(fuzzServer(server, secret, await fuzzRecords(bootstrap, PREFIX, ORGS)));
  }
  await Promise.all(targets);
}

async function fuzzServer(server: FuzzedServer, secret: Buffer, records?: FuzzedRecords): Promise<void> {
  const { url, routes, channels, name } = server;
  const counts = { requests: 0, frames: 0, records: 0, errors: 0 };
  const until = Date.now() + minutes * 60_000;
  const over = () => Date.now() >= until || findings.length >= MAX_FINDINGS || !server.alive();
  const warm = pause(minutes * 15_000).then(() => server.memory());

  async function fuzzUntilOver(ownSeed: number): Promise<void> {
    const values = new Values(seeded(ownSeed));
    const tokens = new Tokens(values, secret);
    while (!over()) {
      const kind = values.below(10);
      if (kind === 0) counts.frames += await fuzzSocket(url, channels, values, tokens);
      else if (kind === 1 && records) counts.records += await records.write(values);
      else {
        const finding = await fuzzHttp(url, routes, values, tokens);
        counts.requests++;
        if (finding?.status) counts.errors++;
        if (finding) findings.push({ ...finding, what: `${name}: ${finding.what}` });
      }
    }
  }

  await Promise.all(Array.from({ length: IN_FLIGHT / 2 }, (_, i) => fuzzUntilOver(seed + i)));
  const before = await warm;
  const after = server.alive() ? await server.memory() : before;
  await records?.close();
  if (server.alive())
    findings.push(...(await checkGoodWork(url, new Tokens(new Values(seeded(seed)), secret))));
  const ready = await fetch(`${url}/readyz`).then(
    (response) => response.text(),
    (error: Error) => error.message,
  );
  const { code, orphans } = await server.stop();
  if (code !== 0) findings.push({ what: `${name}: the server ended with ${code}`, input: "SIGTERM" });
  if (orphans > 0) findings.push({ what: `${name}: ${orphans} processes are left`, input: "SIGTERM" });
  if (after.heap > before.heap * GROWTH + GROWTH_BYTES) {
    const what = `${name}: the heap grew from ${before.heap} to ${after.heap} bytes`;
    findings.push({ what, input: "everything" });
  }
  console.log(
    `${name}: ${counts.requests} requests, ${counts.frames} frames, ${counts.records} records; ${counts.errors} times 5xx; memory ${megabytes(before)}, then ${megabytes(after)}; ${orphans} orphans`,
  );
  console.log(`readyz at the end: ${ready.slice(0, 500)}`);
}

function megabytes({ heap, rss }: Memory): string {
  return `${(heap / 1e6).toFixed(0)} MB heap, ${(rss / 1e6).toFixed(0)} MB in all`;
}
