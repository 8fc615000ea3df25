import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { ROOT } from "../scripts/run.ts";

// Docker itself is not needed here: what can be told from the files is.
const read = (file: string) => readFileSync(join(ROOT, file), "utf8");

interface Service {
  readonly image?: string;
  readonly build?: string;
  readonly healthcheck?: { readonly test: readonly string[] };
  readonly volumes?: readonly string[];
  readonly depends_on?: Readonly<Record<string, { readonly condition: string }>>;
  readonly environment?: Readonly<Record<string, string>>;
}
const compose = parse(read("compose.yaml"), { strict: true }) as {
  services: Record<string, Service>;
  volumes: Record<string, unknown>;
};

test("compose.yaml has every engine, each at a named version, with a health check and a volume", () => {
  expect(Object.keys(compose.services)).toEqual(["khala", "postgres", "redis", "kafka"]);
  const { khala, ...engines } = compose.services;
  for (const [name, { image, healthcheck, volumes = [] }] of Object.entries(engines)) {
    expect(image, name).toMatch(/:\d/);
    expect(healthcheck?.test[0], name).toBe("CMD");
    expect(compose.volumes, name).toHaveProperty(volumes[0]!.split(":")[0]!);
  }
  expect(khala!.depends_on).toEqual({ postgres: { condition: "service_healthy" } });
});

test("what compose.yaml asks the environment for is in .env.example, and nothing else is", () => {
  const asked = [...read("compose.yaml").matchAll(/\$\{(\w+)/g)].map(([, name]) => name);
  const offered = [...read(".env.example").matchAll(/^(\w+)=$/gm)].map(([, name]) => name);
  expect(new Set(offered)).toEqual(new Set(asked));
});

test("no secret has a default", () => {
  for (const { environment = {} } of Object.values(compose.services)) {
    for (const [name, value] of Object.entries(environment)) {
      if (/PASSWORD|SECRET/.test(name)) expect(value, name).toMatch(/^\$\{\w+:\?/);
    }
  }
});

test("the image copies what exists, runs `khala serve` without root, and reports its health by /readyz", () => {
  const text = read("Dockerfile");
  for (const [, paths] of text.matchAll(/^COPY (?!--)(.*) \S+$/gm)) {
    for (const path of paths!.split(" ")) expect(existsSync(join(ROOT, path)), path).toBe(true);
  }
  const [, entry] = /^ENTRYPOINT (.*)$/m.exec(text)!;
  expect(existsSync(join(ROOT, (JSON.parse(entry!) as string[]).at(-1)!))).toBe(true);
  expect(text).toMatch(/^USER node$/m);
  expect(text).toMatch(/^CMD \["serve"\]$/m);
  expect(text).toMatch(/^HEALTHCHECK [\s\S]*\/readyz/m);
});
