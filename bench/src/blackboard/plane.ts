import { packageVersion } from "../kit/package_version.ts";
import type { Plane } from "../kit/plane.ts";
import { startPostgres } from "../kit/postgres.ts";
import type { PartRunner } from "./bench.ts";
import { startKafka } from "./kafka.ts";
import { kafkaFlow } from "./kafka_flow.ts";
import { startUp } from "./start_up.ts";
import { wholeServer } from "./whole_server.ts";

const PARTS: Readonly<Record<string, { readonly run: PartRunner; readonly needs?: "Kafka" }>> = {
  // First, because it is what agents do.
  f: { run: wholeServer },
  a: { run: kafkaFlow, needs: "Kafka" },
  d: { run: startUp, needs: "Kafka" },
};

/** The parts that use a broker where there is one. */
const ON_KAFKA = ["a", "d"];

const COMPARED = ["pg", "pg-boss", "graphile-worker"];

/** The blackboard plane: work on its way through agents. */
export const blackboardPlane: Plane = {
  parts: Object.keys(PARTS),
  results: "RESULTS_BLACKBOARD.md",
  async open(effort, stack, parts) {
    const kafka = parts.some((part) => ON_KAFKA.includes(part))
      ? await startKafka()
      : "the chosen parts do without it";
    const missing = new Map<string, string>();
    if (typeof kafka !== "string") stack.use(kafka);
    else if (parts.some((part) => ON_KAFKA.includes(part))) missing.set("Kafka", kafka);
    for (const [name, reason] of missing)
      console.error(`!! No ${name}: ${reason}. The parts that need it are SKIPPED.\n`);
    const postgres = stack.use(await startPostgres());
    const bootstrap = typeof kafka === "string" ? undefined : kafka.bootstrap;
    return {
      versions: [
        `Node ${process.version}`,
        bootstrap
          ? "Kafka 4.1.1 (one broker, its own defaults for the disk)"
          : "Kafka: NONE, its parts are skipped",
        postgres.version,
        ...COMPARED.map((name) => `${name} ${packageVersion(name)}`),
      ],
      async measure(part) {
        const { run, needs = "" } = PARTS[part]!;
        const reason = missing.get(needs);
        if (reason === undefined)
          return await run({ ...effort, postgres, ...(bootstrap && { kafka: bootstrap }) });
        return {
          title: `(${part}) not measured`,
          how: [`SKIPPED: no ${needs}, ${reason}`],
          tables: [],
          bars: [],
        };
      },
    };
  },
};
