import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Packages are tested from their source, without a build. */
const resolve = { conditions: ["khala-source"] };

/** Kafka's files go last: where its parts are made from nothing, that takes minutes, and the others need not wait. */
class KafkaLast extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    // The longest of them first, or one is left alone at the end.
    const rank = ({ moduleId }: TestSpecification) =>
      !moduleId.includes("kafka") ? 0 : moduleId.includes("board") ? 1 : 2;
    return sorted.toSorted((a, b) => rank(a) - rank(b));
  }
}

export default defineConfig({
  resolve,
  ssr: { resolve },
  // Where Vitest itself runs the global setup.
  environments: { __vitest__: { resolve } },
  test: {
    execArgv: ["--conditions=khala-source"],
    pool: "forks",
    // More than the cores of a small machine: much of the time is spent waiting for servers, brokers and browsers.
    maxWorkers: 3,
    // Bounds for what hangs, and not measures.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    reporters: ["default"],
    sequence: { sequencer: KafkaLast },
    projects: [
      {
        extends: true,
        test: {
          name: "unit",
          include: ["{packages,apps}/*/src/**/*.test.ts", "{scripts,bench}/**/*.test.ts"],
          exclude: ["**/node_modules/**", "**/*.pg.test.ts"],
          // They leave nothing behind, and most of their time went into loading the same modules again.
          isolate: false,
        },
      },
      {
        extends: true,
        test: {
          name: "services",
          include: ["packages/*/{src,test}/**/*.pg.test.ts", "e2e/**/*.test.ts"],
          globalSetup: ["e2e/support/services.ts"],
          setupFiles: ["e2e/support/take_turn.ts"],
          // A busy machine may take its time.
          testTimeout: 90_000,
          hookTimeout: 300_000,
          // It brings a Vitest of its own; this way its tests are tests of ours.
          server: { deps: { inline: ["@durable-streams/server-conformance-tests"] } },
        },
      },
    ],
  },
});
