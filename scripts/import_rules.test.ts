import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ensureInstalled } from "./install.ts";

const ROOT = join(import.meta.dirname, "..");
const SERVER = "packages/server/src";

/** Who may import whom inside the server, as ARCHITECTURE has it. */
const MAY_IMPORT: Record<string, readonly string[]> = {
  kit: [],
  database: ["kit"],
  access: ["kit", "database"],
  events: ["kit", "database", "access"],
  // Projections consume events, so sync knows their type and where they are read.
  sync: ["kit", "database", "access", "events"],
  conversations: ["kit", "database", "access"],
  durable_streams: ["kit", "database", "access"],
  blackboard: ["kit", "database", "access"],
  gateway: ["kit", "database", "access", "events", "sync", "conversations", "durable_streams", "blackboard"],
};
const rooms = Object.keys(MAY_IMPORT);

/** One file in its place, and the specifiers that it imports. */
interface Probe {
  readonly file: string;
  readonly imports: readonly string[];
}

const between = (room: string): Probe => ({
  file: `${SERVER}/${room}/probe.ts`,
  imports: rooms.filter((other) => other !== room).map((other) => `../${other}/thing.ts`),
});
const deeper = (room: string): Probe => ({
  file: `${SERVER}/${room}/inner/probe.ts`,
  imports: [
    ...rooms.filter((other) => other !== room).map((other) => `../../${other}/thing.ts`),
    "../sibling.ts",
  ],
});
const PROBES = {
  contracts: {
    file: "packages/contracts/src/probe.ts",
    imports: ["@khala/server", "node:fs", "./names.ts", "./names.test.ts", "@bufbuild/protobuf"],
  },
  client: {
    file: "packages/client/src/probe.ts",
    imports: ["@khala/server", "@khala/cli", "node:fs", "@khala/contracts", "@khala/contracts/sync/v1"],
  },
  dashboard: {
    file: "apps/dashboard/src/probe.ts",
    imports: [
      "@khala/server",
      "@khala/contracts",
      "node:fs",
      "@khala/client",
      "@khala/client/react",
      "react",
    ],
  },
  cli: {
    file: "packages/cli/src/probe.ts",
    imports: [
      "../../server/src/main/khala.ts",
      "@khala/server",
      "@khala/contracts",
      "@khala/client",
      "node:fs",
    ],
  },
  plane: {
    file: `${SERVER}/sync/drivers.ts`,
    imports: [
      "../database/embedded.ts",
      "./mirror/mirror_convex.ts",
      "../main/khala.ts",
      "../main/config.ts",
      "@khala/server",
      "@khala/cli",
    ],
  },
  clients: {
    file: `${SERVER}/sync/clients.ts`,
    imports: ["pg", "ioredis", "fastify", "ws", "jose", "./sink.test.ts", "@khala/contracts"],
  },
  door: {
    file: `${SERVER}/gateway/clients.ts`,
    imports: ["pg", "ioredis", "fastify", "ws", "jose", "../main/config.ts"],
  },
  root: {
    file: `${SERVER}/main/khala.ts`,
    imports: ["../database/embedded.ts", "../sync/mirror/mirror_convex.ts", "../gateway/a.ts", "./config.ts"],
  },
  test: {
    file: `${SERVER}/kit/probe.test.ts`,
    imports: ["../database/embedded.ts", "../main/khala.ts", "../gateway/test_support.ts"],
  },
} satisfies Record<string, Probe>;

let folder: string;
const forbidden = new Map<string, string[]>();

beforeAll(async () => {
  await ensureInstalled("tools/check");
  folder = await mkdtemp(join(tmpdir(), "khala-imports-"));
  await copyFile(join(ROOT, "biome.json"), join(folder, "biome.json"));
  const probes = [...Object.values<Probe>(PROBES), ...rooms.map(between), ...rooms.map(deeper)];
  for (const { file, imports } of probes) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    await writeFile(join(folder, file), imports.map((name) => `import ${JSON.stringify(name)};`).join("\n"));
  }
  for (const { file, line } of await lint(folder)) {
    const name = probes.find((probe) => probe.file === file)?.imports[line - 1];
    forbidden.set(file, [...(forbidden.get(file) ?? []), name ?? `line ${line}`]);
  }
});
afterAll(() => rm(folder, { recursive: true, force: true }));

interface Report {
  readonly diagnostics: readonly {
    readonly location: { readonly path: string; readonly start: { readonly line: number } };
  }[];
}

async function lint(cwd: string): Promise<{ file: string; line: number }[]> {
  const args = [
    "lint",
    "--vcs-enabled=false",
    "--only=style/noRestrictedImports",
    "--reporter=json",
    "--max-diagnostics=none",
    ".",
  ];
  const { code, stdout } = await new Promise<{ code: unknown; stdout: string }>((resolve) =>
    execFile(
      join(ROOT, "tools/check/node_modules/.bin/biome"),
      args,
      { cwd, timeout: 30_000 },
      (error, stdout) => resolve({ code: error ? error.code : 0, stdout }),
    ),
  );
  expect(code, "a forbidden import fails the check").toBe(1);
  const { diagnostics } = JSON.parse(stdout) as Report;
  const places = diagnostics.map(({ location }) => ({ file: location.path, line: location.start.line }));
  return places.sort((a, b) => a.line - b.line);
}

test("every room of the server has its rule", () => {
  const folders = readdirSync(join(ROOT, SERVER), { withFileTypes: true }).filter(
    (entry) => entry.isDirectory() && entry.name !== "main",
  );
  expect(rooms).toEqual(expect.arrayContaining(folders.map((entry) => entry.name)));
});

describe.for(rooms)("%s", (room) => {
  const others = rooms.filter((other) => other !== room && !MAY_IMPORT[room]!.includes(other));

  test("imports only rooms below it", () => {
    expect(forbidden.get(between(room).file) ?? []).toEqual(others.map((other) => `../${other}/thing.ts`));
  });
  test("applies to its subfolders too", () => {
    expect(forbidden.get(deeper(room).file) ?? []).toEqual(others.map((other) => `../../${other}/thing.ts`));
  });
});

test("contracts imports no package of ours, nothing of Node, and no test", () => {
  expect(forbidden.get(PROBES.contracts.file)).toEqual(["@khala/server", "node:fs", "./names.test.ts"]);
});

test("client imports only contracts", () => {
  expect(forbidden.get(PROBES.client.file)).toEqual(["@khala/server", "@khala/cli", "node:fs"]);
});

test("the dashboard imports only client", () => {
  expect(forbidden.get(PROBES.dashboard.file)).toEqual(["@khala/server", "@khala/contracts", "node:fs"]);
});

test("cli imports packages by their names", () => {
  expect(forbidden.get(PROBES.cli.file)).toEqual(["../../server/src/main/khala.ts"]);
});

test("a plane imports no driver, no setting, and no package above it", () => {
  expect(forbidden.get(PROBES.plane.file)).toEqual(PROBES.plane.imports);
});

test("only one room imports the client of PostgreSQL, of HTTP, of WebSocket and of tokens", () => {
  expect(forbidden.get(PROBES.clients.file)).toEqual([
    "pg",
    "ioredis",
    "fastify",
    "ws",
    "jose",
    "./sink.test.ts",
  ]);
  expect(forbidden.get(PROBES.door.file)).toEqual(["pg", "ioredis", "../main/config.ts"]);
});

test("khala.ts and tests may import anything", () => {
  expect(forbidden.get(PROBES.root.file)).toBeUndefined();
  expect(forbidden.get(PROBES.test.file)).toBeUndefined();
});
