import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { describeConfig, readConfig } from "../../packages/server/src/main/config.ts";
import { ROOT } from "../../scripts/run.ts";

// Docker itself is not needed here: what can be told from the files is.
const read = (file: string) => readFileSync(join(ROOT, file), "utf8");

interface Service {
  readonly image?: string;
  readonly profiles?: readonly string[];
  readonly ports?: readonly string[];
  readonly healthcheck?: { readonly test: readonly string[] };
  readonly volumes?: readonly string[];
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
  readonly environment?: Readonly<Record<string, string>>;
}
const compose = parse(read("compose.yaml"), { strict: true }) as {
  services: Record<string, Service>;
  volumes: Record<string, unknown>;
};

test("compose.yaml has every backend, each with a pinned version, a health check and a volume", () => {
  const { khala, "kafka-ui": page, ...backends } = compose.services;
  expect(Object.keys(backends)).toEqual(["postgres", "redis", "kafka"]);
  for (const [name, { image, healthcheck, volumes = [] }] of Object.entries(backends)) {
    expect(image, name).toMatch(/:\d/);
    expect(healthcheck?.test[0], name).toBe("CMD");
    expect(compose.volumes, name).toHaveProperty(volumes[0]!.split(":")[0]!);
  }
  expect(khala!.depends_on).toEqual({ postgres: { condition: "service_healthy" } });
  // It keeps nothing, and so has no volume.
  expect(page!.image).toMatch(/:v\d/);
  expect(page!.healthcheck?.test[0]).toBe("CMD");
});

test("its Kafka is the one of the tests, with an address for containers and one for the machine", () => {
  const { image, environment, ports } = compose.services.kafka!;
  const [, tested] = /^const VERSION = "(.*)";$/m.exec(read("packages/test-support/src/kafka/binary.ts"))!;
  expect(image?.split("@")[0]).toBe(`apache/kafka:${tested}`);
  expect(environment!.KAFKA_ADVERTISED_LISTENERS).toBe("PLAINTEXT://kafka:9092,HOST://localhost:9094");
  expect(ports).toEqual(["127.0.0.1:9094:9094"]);
});

test("the Kafka UI starts only on request, with Kafka, and is read-only", () => {
  const { kafka, "kafka-ui": page } = compose.services;
  expect(page!.profiles).toEqual(["kafka-ui"]);
  expect(page!.depends_on).toEqual({ kafka: { condition: "service_healthy" } });
  expect(page!.environment!.KAFKA_CLUSTERS_0_READONLY).toBe("true");
  expect(kafka!.profiles).toEqual(["backends", "kafka-ui"]);
});

test("publishes ports on loopback only", () => {
  for (const [name, { ports = [] }] of Object.entries(compose.services))
    for (const port of ports) expect(port, name).toMatch(/^127\.0\.0\.1:\d+:\d+$/);
});

test("passes every setting to the server, unset where .env has no value", () => {
  const names = describeConfig(readConfig({})).map(({ name }) => name);
  const { DATABASE_URL, ...environment } = compose.services.khala!.environment!;
  expect(DATABASE_URL).toContain("@postgres:5432/");
  // The image sets where it listens. A data folder is for an embedded PostgreSQL and development keys.
  const own = ["DATABASE_URL", "KHALA_HOST", "KHALA_PORT", "KHALA_WORKER_PORT", "KHALA_DATA_DIR"];
  expect(Object.keys(environment)).toEqual(names.filter((name) => !own.includes(name)));
  for (const [name, value] of Object.entries(environment)) expect(value).toBe(`\${${name}:-}`);
  const empty = Object.fromEntries(Object.keys(environment).map((name) => [name, ""]));
  expect(readConfig(empty)).toEqual(readConfig({}));
});

test(".env.example has exactly the variables of compose.yaml, without values", () => {
  const asked = [...read("compose.yaml").matchAll(/\$\{(\w+)/g)].map(([, name]) => name);
  // What few need is commented out.
  const offered = [...read(".env.example").matchAll(/^(?:# )?(\w+)=(.*)$/gm)];
  expect(new Set(offered.map(([, name]) => name))).toEqual(new Set(asked));
  for (const [, name, value] of offered) expect(value, name).toBe("");
});

test("no secret has a default, and required ones have an error message", () => {
  // `khala serve` itself refuses to start without keys, which may be those of an identity provider.
  const needed = ["POSTGRES_PASSWORD"];
  for (const { environment = {} } of Object.values(compose.services)) {
    for (const [name, value] of Object.entries(environment)) {
      if (needed.includes(name)) expect(value, name).toMatch(/^\$\{\w+:\?/);
      else if (/PASSWORD|SECRET|PASSPHRASE|KEY/.test(name)) expect(value, name).toBe(`\${${name}:-}`);
    }
  }
});

test("the image has only existing files, runs `khala serve` without root, and checks /readyz, also as a worker", () => {
  const text = read("Dockerfile");
  for (const [, paths] of text.matchAll(/^COPY (?!--)(.*) \S+$/gm)) {
    for (const path of paths!.split(" ")) expect(existsSync(join(ROOT, path)), path).toBe(true);
  }
  const [, entry] = /^ENTRYPOINT (.*)$/m.exec(text)!;
  expect(existsSync(join(ROOT, (JSON.parse(entry!) as string[]).at(-1)!))).toBe(true);
  expect(text).toMatch(/^USER node$/m);
  expect(text).toMatch(/^CMD \["serve"\]$/m);
  expect(text).toMatch(/^HEALTHCHECK [\s\S]*\/readyz/m);
  expect(text).toMatch(/^ENV .*KHALA_PORT=(\d+) KHALA_WORKER_PORT=\1$/m);
});
