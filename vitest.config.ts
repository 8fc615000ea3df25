import { existsSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Packages are tested from their source, without a build. */
const resolve = { conditions: ["khala-source"] };

/** They take minutes each: begun last, the other workers would wait for them. */
const LONG = [
  "install/docs.",
  "install/packages.",
  "install/new_app.",
  "install/site.",
  "dashboard/home_page.",
  "kafka/kafka_board.",
];

/** Made by the first run on a machine, in minutes, and found in a cache by later ones. */
const KAFKA_CLIENT = join(import.meta.dirname, "packages/kafka/node_modules/@confluentinc/kafka-javascript");

/**
 * Runs long files first, and spreads Kafka's over the run: they mostly wait for groups to form, which leaves the cores to
 * others. They are last where the client is still being built, so that others need not wait.
 */
class LongFirstKafkaSpread extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isLong = ({ moduleId }: TestSpecification) => LONG.some((name) => moduleId.includes(name));
    const ordered = [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
    const isKafka = ({ moduleId, project }: TestSpecification) =>
      project.name !== "unit" && moduleId.includes("kafka");
    const kafka = ordered.filter(isKafka);
    const others = ordered.filter((file) => !isKafka(file));
    if (!existsSync(KAFKA_CLIENT)) return [...others, ...kafka];
    const places = [kafka, others].flatMap((part) => part.map((file, i) => ({ file, at: i / part.length })));
    return places.toSorted((a, b) => a.at - b.at).map(({ file }) => file);
  }
}

/**
 * `*.pg.test.ts` beside the code needs PostgreSQL alone; `*.redis.test.ts` and `*.kafka.test.ts` need their backend too, and
 * `*.convex.test.ts` the npm package of e2e/peers.
 */
const besideCode = (backend: string) => `packages/*/src/**/*.${backend}.test.ts`;

/** Needs programs that only the system's own PostgreSQL has. */
const PG_DUMP = "e2e/sync/restores_dump.test.ts";

/** Needs the install of tools/check, which the quick tests do without. */
const IMPORT_RULES = "scripts/import_rules.test.ts";

/** They replace a module, or give the process a document, so they get a process each. */
const ALONE = [
  "e2e/gateway/tenant_statements{,_planes}.test.ts",
  "e2e/client/client_react.test.ts",
  "e2e/conversations/ai_sdk_react.test.ts",
];

/** Run again on the system's own PostgreSQL: one that is older, has default settings, and gives us a role without privileges. */
const onStockPostgres = [
  "packages/server/src/{events,database}/{authority,append_in_order,migrate}.pg.test.ts",
  "packages/server/src/conversations/log/postgres/postgres_log.pg.test.ts",
  "packages/server/src/blackboard/postgres/open_board.pg.test.ts",
  "packages/server/src/{conversations,blackboard/postgres}/plans.pg.test.ts",
  "packages/server/src/main/operations/backup.pg.test.ts",
  PG_DUMP,
  "e2e/stories/{sync,conversations,blackboard}.test.ts",
  // These run nowhere else.
  "e2e/stock/*.test.ts",
];

/** Run again on the oldest PostgreSQL that Khala supports; on another version, KHALA_TEST_POSTGRES runs all of `onStockPostgres`. */
const onOldestPostgres = [
  "packages/server/src/{events,database}/{authority,append_in_order,session}.pg.test.ts",
  "packages/server/src/conversations/log/postgres/postgres_log.pg.test.ts",
  "packages/server/src/blackboard/postgres/open_board.pg.test.ts",
  "e2e/stories/{sync,conversations,blackboard}.test.ts",
];

/** The durable-streams suite brings a Vitest of its own; inlined, its tests are tests of ours. */
const server = { deps: { inline: ["@durable-streams/server-conformance-tests"] } };

export default defineConfig({
  resolve,
  ssr: { resolve },
  // Vitest runs the global setup here.
  environments: { __vitest__: { resolve } },
  test: {
    execArgv: ["--conditions=khala-source"],
    pool: "forks",
    // More than the cores of a small machine: much of the time is spent waiting for servers, brokers and browsers.
    maxWorkers: 3,
    // Limits for what hangs, not measurements.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    reporters: ["default"],
    sequence: { sequencer: LongFirstKafkaSpread },
    // The tiers of scripts/run_tests.ts are made of these.
    projects: [
      {
        extends: true,
        test: {
          name: "unit",
          include: ["{packages,apps}/*/src/**/*.test.ts", "{scripts,bench}/**/*.test.ts"],
          setupFiles: ["packages/test-support/src/kit/fixed_seed.ts"],
          exclude: ["**/node_modules/**", "**/*.{pg,redis,kafka,convex}.test.ts", IMPORT_RULES],
          // Unit tests leave nothing behind, and most of their time would go into loading the same modules again.
          isolate: false,
        },
      },
      {
        extends: true,
        test: {
          name: "postgres",
          include: [besideCode("pg"), "e2e/stories/*.test.ts", "e2e/*/property_*.test.ts"],
          globalSetup: ["packages/test-support/src/services/postgres_only.ts"],
          isolate: false,
        },
      },
      {
        extends: true,
        test: {
          name: "backends",
          include: [besideCode("{redis,kafka,convex}"), "e2e/**/*.test.ts", IMPORT_RULES],
          exclude: [
            "**/node_modules/**",
            "e2e/{stories,stock,chaos}/**",
            "e2e/{sync,client}/property_*",
            PG_DUMP,
            ...ALONE,
          ],
          isolate: false,
          globalSetup: ["packages/test-support/src/services/services.ts"],
          testTimeout: 90_000,
          hookTimeout: 300_000,
          server,
        },
      },
      {
        extends: true,
        test: {
          name: "alone",
          include: ALONE,
          globalSetup: ["packages/test-support/src/services/postgres_only.ts"],
          testTimeout: 90_000,
          hookTimeout: 300_000,
        },
      },
      {
        extends: true,
        test: {
          name: "stock",
          include: onStockPostgres,
          globalSetup: ["packages/test-support/src/services/stock_postgres.ts"],
          testTimeout: 90_000,
        },
      },
      {
        extends: true,
        test: {
          name: "oldest",
          include: onOldestPostgres,
          globalSetup: ["packages/test-support/src/services/stock_postgres.ts"],
          testTimeout: 90_000,
        },
      },
      {
        extends: true,
        test: {
          name: "chaos",
          include: ["e2e/chaos/*.test.ts"],
          globalSetup: ["packages/test-support/src/services/services.ts"],
          testTimeout: 600_000,
          hookTimeout: 300_000,
          server,
          // Each file loads the machine by itself.
          fileParallelism: false,
        },
      },
    ],
  },
});
