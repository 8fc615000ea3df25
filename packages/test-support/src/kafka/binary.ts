import { execFile } from "node:child_process";
import { realpath, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { cached, exists, findCached, onPath, step } from "./cache.ts";

const run = promisify(execFile);
const VERSION = "4.1.1";
const CACHE = `kafka-${VERSION}`;
const IMAGE = `docker.io/apache/kafka:${VERSION}`;
// Kafka speaks SLF4J 1.7, which is why this is not log4j-slf4j2-impl.
const DEPENDENCIES = [
  `org.apache.kafka:kafka_2.13:${VERSION}`,
  "org.apache.logging.log4j:log4j-api:2.24.3",
  "org.apache.logging.log4j:log4j-core:2.24.3",
  "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
];

/** How a Kafka broker is started on this machine. */
export interface KafkaBinary {
  readonly java: string;
  readonly classpath: string;
  /** Its classes in Java's archive: it starts in half the time. */
  readonly archive?: string;
  /** Runs it in a container of this engine, from `image`. */
  readonly container?: string;
  readonly image?: string;
}

/** The programs Maven needs, by package. */
export const MAVEN_NEEDS = { "default-jre-headless": "java", maven: "mvn" } as const;

/** Finds a Kafka on PATH, then one fetched before, then a container engine that works. */
export async function findKafka(): Promise<KafkaBinary | undefined> {
  const java = await onPath("java");
  if (java) {
    for (const name of ["kafka-server-start.sh", "kafka-server-start"]) {
      const script = await onPath(name);
      if (!script) continue;
      const libs = join(dirname(await realpath(script)), "../libs");
      if (await exists(libs)) return { java, classpath: `${libs}/*` };
    }
    const jars = await findCached(CACHE);
    if (jars) return binaryOf(java, jars);
  }
  for (const container of ["docker", "podman"]) {
    try {
      await run(container, ["run", "--rm", "--entrypoint", "java", IMAGE, "-version"], { timeout: 120_000 });
      return { java: "java", classpath: "/opt/kafka/libs/*", container, image: IMAGE };
    } catch {
      // Not installed, not running, or without the image: try the next one.
    }
  }
  return undefined;
}

/** Fetches the broker with Maven, once for this machine. */
export async function fetchKafka(signal: AbortSignal): Promise<KafkaBinary> {
  const jars = await cached(CACHE, async (folder) => {
    await writeFile(join(folder, "pom.xml"), pom());
    const copy = ["-DoutputDirectory=lib", "-DincludeScope=runtime"];
    await step("mvn", ["-q", "-B", "dependency:copy-dependencies", ...copy], { cwd: folder, signal });
  });
  return binaryOf((await onPath("java"))!, jars);
}

function binaryOf(java: string, folder: string): KafkaBinary {
  return { java, classpath: join(folder, "lib/*") };
}

function pom(): string {
  const dependencies = DEPENDENCIES.map((dependency) => {
    const [group, artifact, version] = dependency.split(":");
    return `<dependency><groupId>${group}</groupId><artifactId>${artifact}</artifactId><version>${version}</version></dependency>`;
  });
  return `<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>khala</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies>${dependencies.join("\n")}</dependencies>
</project>
`;
}
