import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findPromtool } from "@khala/test-support/clients/promtool";
import { scrapeBusyServer } from "@khala/test-support/clients/scrape";
import { testDatabase } from "@khala/test-support/postgres/test_database";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ROOT, run } from "../../scripts/run.ts";

const FOLDER = join(ROOT, "deploy/prometheus");
const rules = await readFile(join(FOLDER, "khala.rules.yml"), "utf8");
const cases = await readFile(join(FOLDER, "khala.rules.test.yml"), "utf8");
const dashboard = await readFile(join(ROOT, "deploy/grafana/khala-sync.json"), "utf8");

/** Each alert's part of the rules, by its name. */
const alerts = new Map(
  rules
    .split(/^ {6}- (?=alert:|record:)/m)
    .filter((part) => part.startsWith("alert:"))
    .map((part) => [/^alert: (\w+)$/m.exec(part)![1]!, part]),
);
const queries = [...dashboard.matchAll(/"expr": ("(?:[^"\\]|\\.)*")/g)].map(
  ([, text]) => JSON.parse(text!) as string,
);

/** The page that an alert's link leads to, wherever docs/ is served. */
function runbookOf(alert: string): string | undefined {
  const [, path] = /^ +runbook_url: "\{\{ \$externalLabels\.khala_docs \}\}\/(\S+)"$/m.exec(alert) ?? [];
  return path && `docs/${path}`;
}

let folder: string;
let promtool: string | undefined;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "khala-promtool-"));
  promtool = await findPromtool(folder);
  if (!promtool)
    console.warn("SKIPPED: the alert rules, because promtool is not on PATH. Install Prometheus.");
}, 300_000);
afterAll(() => rm(folder, { recursive: true, force: true }));

describe("with promtool", { timeout: 120_000 }, () => {
  const promtools = async (...args: string[]) => {
    const { code, output } = await run(promtool!, args, FOLDER);
    expect(code, output).toBe(0);
  };

  test("the rules and the configuration that loads them are valid", async (context) => {
    context.skip(!promtool, "promtool is not on PATH");
    await promtools("check", "rules", "khala.rules.yml");
    await promtools("check", "config", "prometheus.yml");
  });

  test("every alert fires when it should, and only then", async (context) => {
    context.skip(!promtool, "promtool is not on PATH");
    await promtools("test", "rules", "khala.rules.test.yml");
  });

  test("the metrics of a busy server have names and descriptions in Prometheus style", async (context) => {
    context.skip(!promtool, "promtool is not on PATH");
    await using own = await testDatabase();
    const { text } = await scrapeBusyServer(own.url);
    const file = join(folder, "metrics.txt");
    await writeFile(file, text);
    const { code, output } = await run(
      "sh",
      ["-c", '"$1" check metrics < "$2"', "sh", promtool!, file],
      FOLDER,
    );
    expect(output.trim()).toBe("");
    expect(code).toBe(0);
  });

  test("every query of the dashboard is valid", async (context) => {
    context.skip(!promtool, "promtool is not on PATH");
    const recorded = queries.map((expr, i) => ({
      record: `dashboard:query:${i}`,
      expr: expr.replaceAll("$", ""),
    }));
    // JSON is YAML.
    await writeFile(
      join(folder, "dashboard.yml"),
      JSON.stringify({ groups: [{ name: "dashboard", rules: recorded }] }),
    );
    expect(recorded.length).toBeGreaterThan(20);
    await promtools("check", "rules", join(folder, "dashboard.yml"));
  });
});

test("every alert has a case, a severity, a summary, a description and the URL of a runbook that exists", () => {
  expect(alerts.size).toBeGreaterThan(10);
  for (const [name, alert] of alerts) {
    expect(cases, name).toMatch(new RegExp(`alertname(=|: )"?${name}\\b|alertname=~`));
    expect(alert, name).toMatch(/^ +severity: (critical|warning)$/m);
    expect(alert, name).toMatch(/^ +summary: \S/m);
    expect(alert, name).toMatch(/^ +description: \S/m);
    const runbook = runbookOf(alert);
    expect(runbook && existsSync(join(ROOT, runbook)), `${name}: ${runbook}`).toBe(true);
  }
});

test("every runbook linked by an alert names the alert", async () => {
  for (const [name, alert] of alerts) {
    const runbook = runbookOf(alert)!;
    if (runbook.includes("/runbooks/"))
      expect(await readFile(join(ROOT, runbook), "utf8"), runbook).toContain(name);
  }
});

test("the rules and the dashboard use only metrics that a server reports or a rule records", async () => {
  await using own = await testDatabase();
  const reported = new Set((await scrapeBusyServer(own.url)).metrics.map(({ name }) => name));
  const recorded = new Set([...rules.matchAll(/record: (\S+)/g)].map(([, name]) => name!));
  const asked = [rules, cases, dashboard].flatMap(
    (text) => text.match(/(?<!\.)\b[a-z_:]*(?:khala_(?!docs\b)|http_server_)[a-z_0-9:]+/g) ?? [],
  );
  expect(asked.length).toBeGreaterThan(50);
  for (const name of new Set(asked)) {
    const known =
      recorded.has(name) || reported.has(name) || reported.has(name.replace(/_(bucket|count|sum)$/, ""));
    expect(known, name).toBe(true);
  }
});
