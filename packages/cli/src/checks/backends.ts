import type { Config } from "@khala/server";
import { probeKafka, probeRedis } from "@khala/server/operations";
import { type Finding, ok, problem, warning } from "./finding.ts";

/** Checks the backends that the settings name beside the database. */
export async function checkBackends(config: Config): Promise<Finding[]> {
  return Promise.all([
    config.REDIS_URL
      ? checkRedis(config.REDIS_URL)
      : ok("Redis", "not used: conversations are in PostgreSQL"),
    config.KAFKA_BOOTSTRAP_SERVERS
      ? checkKafka(config, config.KAFKA_BOOTSTRAP_SERVERS.split(",").length)
      : ok("Kafka", "not used: the blackboard is in PostgreSQL"),
  ]);
}

async function checkRedis(url: string): Promise<Finding> {
  try {
    const { version, cluster } = await probeRedis(url);
    return ok("Redis", `${version} answers${cluster ? ", a cluster" : ""}`);
  } catch (error) {
    const fix =
      "Start it, or correct REDIS_URL: redis://user:password@host:6379. Without it PostgreSQL is used.";
    return problem("Redis", (error as Error).message, fix);
  }
}

async function checkKafka(config: Config, named: number): Promise<Finding> {
  try {
    const reached = await probeKafka(config);
    if (reached.length === named)
      return ok("Kafka", `${reached.join(", ")} ${named > 1 ? "answer" : "answers"}`);
    const fix =
      "One broker is enough to connect. Start the others, or remove them from KAFKA_BOOTSTRAP_SERVERS.";
    return warning("Kafka", `only ${reached.join(", ")} of ${named} brokers can be reached`, fix);
  } catch (error) {
    const fix =
      "Start it, or correct KAFKA_BOOTSTRAP_SERVERS (host:9092,host:9092), KAFKA_SSL_* or KAFKA_SASL_*. Without them PostgreSQL is used.";
    return problem("Kafka", (error as Error).message, fix);
  }
}
