import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { DescMessage } from "@bufbuild/protobuf";
import { ERRORS, type ErrorCode } from "@khala/contracts";
import { AgentStateSchema, CorrelationStateSchema } from "@khala/contracts/blackboard/v1";
import { WaitingApprovalSchema } from "@khala/contracts/conversation/v1";
import { InvoiceSchema } from "@khala/contracts/lightning/v1";
import { NotificationSchema, RunSummarySchema, WorkerSummarySchema } from "@khala/contracts/runtime/v1";
import {
  describeConfig,
  lightningControlPlane,
  notifications,
  readConfig,
  runSummaries,
  runs,
  workerSummaries,
  workers,
} from "@khala/server";
import { scrapeBusyServer } from "@khala/test-support/clients/scrape";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { expect, test } from "vitest";
import { waitingApprovals } from "../../packages/server/src/sync/models/approvals.ts";
import {
  boardAgentStates,
  boardCorrelationStates,
} from "../../packages/server/src/sync/models/blackboard.ts";
import { ROOT } from "../../scripts/run.ts";

const read = (path: string) => readFileSync(join(ROOT, path), "utf8");
const LIMITS = "docs/protocol/sync/limits.md";

/** The cells of each row of a document's tables whose first cell is code. */
function rowsOf(text: string): string[][] {
  const lines = text.split("\n").filter((line) => line.startsWith("| `") || /^\| \d{4} \|/.test(line));
  return lines.map((line) =>
    line
      .slice(1, -1)
      .split("|")
      .map((cell) => cell.trim()),
  );
}

/** The part of a document under a heading, up to the next of its rank. */
function section(path: string, heading: string): string {
  const text = read(path);
  const start = text.indexOf(`\n${heading}\n`);
  expect(start, `${path} has "${heading}"`).toBeGreaterThan(0);
  const rank = heading.slice(0, heading.indexOf(" ") + 1);
  const end = text.indexOf(`\n${rank}`, start + 1);
  return text.slice(start, end < 0 ? undefined : end);
}

const code = (cell: string | undefined) => /^`([^`]+)`$/.exec(cell ?? "")?.[1];

test("docs/protocol/ERRORS.md equals the error table", () => {
  const rows = rowsOf(read("docs/protocol/ERRORS.md")).map(([name, status, close, retry]) => [
    code(name),
    { status: Number(status), close: Number(close), retryable: retry === "yes" },
  ]);
  expect(rows).toEqual(Object.entries(ERRORS));
});

test("the close codes of the protocol equal those of the error table", () => {
  const documented = rowsOf(section(LIMITS, "## Close codes")).map(([close, codes]) => [
    Number(close),
    [...codes!.matchAll(/`(\w+)`/g)].map(([, name]) => name),
  ]);
  const codes = Object.keys(ERRORS) as ErrorCode[];
  const byClose = Map.groupBy(codes, (name) => ERRORS[name].close);
  expect(documented).toEqual([...byClose].sort(([a], [b]) => a - b));
});

test("the limits of the protocol equal the defaults of the settings", () => {
  const defaults = new Map(describeConfig(readConfig({})).map(({ name, value }) => [name, value]));
  const rows = rowsOf(section(LIMITS, "## Limits"));
  expect(rows.length).toBeGreaterThan(10);
  for (const [name, value] of rows)
    expect([code(name), Number(value)]).toEqual([code(name), defaults.get(code(name)!)]);
});

test("every setting named in the docs exists", () => {
  const known = new Set(describeConfig(readConfig({})).map(({ name }) => name));
  // Variables of the command line and of the tests, not settings of a server.
  const others = new Set([
    "KHALA_URL",
    "KHALA_TOKEN",
    "KHALA_TEST_DATABASE_URL",
    "KHALA_TEST_REDIS_URL",
    "KHALA_TEST_KAFKA_BOOTSTRAP_SERVERS",
    "KHALA_TEST_INSTALL",
  ]);
  const files = readdirSync(join(ROOT, "docs"), { recursive: true, encoding: "utf8" });
  for (const file of files.filter((name) => name.endsWith(".md"))) {
    for (const [name] of read(`docs/${file}`).matchAll(/\b(?:KHALA|KAFKA|FLOCK)_[A-Z_]+[A-Z]\b(?!_?\*)/g))
      expect(known.has(name) || others.has(name), `${file} names ${name}`).toBe(true);
  }
});

test("docs/sync/SURFACES.md has the fields of every document of the built-in models", () => {
  const documents: [{ topic: string; prefix: string }, DescMessage][] = [
    [runSummaries, RunSummarySchema],
    [workerSummaries, WorkerSummarySchema],
    [notifications, NotificationSchema],
    [lightningControlPlane, InvoiceSchema],
    [boardAgentStates, AgentStateSchema],
    [boardCorrelationStates, CorrelationStateSchema],
    [waitingApprovals, WaitingApprovalSchema],
  ];
  for (const [{ topic, prefix }, schema] of documents) {
    const text = section("docs/sync/SURFACES.md", `### \`${topic}\``);
    expect(text).toContain(`Key \`${prefix}:`);
    expect(rowsOf(text).map(([name]) => code(name))).toEqual(schema.fields.map(({ name }) => name));
  }
});

test("docs/protocol/http/events.md has every event type of runs and workers", () => {
  const rows = rowsOf(read("docs/protocol/http/events.md")).map(([name]) => code(name));
  expect(rows).toEqual([...Object.keys(runs.events), ...Object.keys(workers.events)]);
});

test("docs/protocol/http/routes.md has every route", () => {
  const folder = "packages/server/src/gateway/http/routes";
  const sources = readdirSync(join(ROOT, folder)).filter((name) => !name.endsWith(".test.ts"));
  const literal = sources.flatMap((file) =>
    [
      ...read(`${folder}/${file}`).matchAll(/http\.(?:open\(|route\(\s*"[^"]+",\s*)"([A-Z]+)",\s*"([^"{]+)/g),
    ].map(([, method, path]) => `${method} ${path}`),
  );
  const streams = [runs, workers].map(({ path }) => `POST ${path}/:id/events`);
  expect(literal.length).toBeGreaterThan(5);
  const documented = rowsOf(read("docs/protocol/http/routes.md")).map(([route]) => code(route));
  for (const route of [...literal, ...streams]) expect(documented).toContain(route);
});

test("the pages of metrics have exactly those that a server reports, with their types", async () => {
  await using own = await testDatabase();
  const reported = (await scrapeBusyServer(own.url)).metrics.map(({ name, type }) => `${name} ${type}`);
  const pages = ["docs/sync/METRICS.md", "docs/conversations/METRICS.md", "docs/blackboard/METRICS.md"];
  const documented = pages.flatMap((page) =>
    rowsOf(read(page)).map(([name, type]) => `${code(name)} ${type}`),
  );
  expect(documented.toSorted()).toEqual(reported.toSorted());
});
