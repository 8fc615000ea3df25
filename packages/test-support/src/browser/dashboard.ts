import { existsSync } from "node:fs";
import { mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import {
  type AppDefinition,
  createKhala,
  type Khala,
  notifications,
  readConfig,
  runSummaries,
  workerSummaries,
} from "@khala/server";
import { scripted } from "@khala/server/engines";
import { type TestDatabase, testDatabase } from "../postgres/test_database.ts";

const FOLDER = join(import.meta.dirname, "../../../../apps/dashboard");

/** The subject of a page on a development server, which owns all that tests write. */
export const DEVELOPER = { sub: "dev", org_id: "demo" } as const;

/** A server with the dashboard. Disposing of it stops it, and drops its database. */
export interface DashboardServer extends AsyncDisposable {
  readonly khala: Khala;
  readonly url: string;
  readonly database: TestDatabase["database"];
  /** A token of the developer with the scopes of the page. */
  token(): Promise<string>;
  /** Sends a request of the developer, which must succeed. */
  post<T>(path: string, body: unknown): Promise<T>;
}

export interface DashboardOptions {
  /** Used instead of an app made of the other options. */
  readonly app?: Parameters<typeof createKhala>[0];
  readonly agents?: NonNullable<AppDefinition["agents"]>;
  readonly engine?: NonNullable<AppDefinition["engine"]>;
  readonly settings?: Readonly<Record<string, string>>;
  /** Whether Home shows the demo. */
  readonly demo?: boolean;
}

/** Starts a development server with the dashboard built from the current sources. */
export async function startDashboard(options: DashboardOptions = {}): Promise<DashboardServer> {
  const { agents = [], engine = scripted({ tokenMs: 15 }), settings = {}, demo = false } = options;
  const page = await builtPage();
  const database = await testDatabase();
  const config = readConfig({
    DATABASE_URL: database.url,
    KHALA_PORT: "0",
    KHALA_LOG_LEVEL: "silent",
    KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
    KHALA_DRAIN_MS: "1000",
    KHALA_BOARD_POLL_MS: "50",
    ...settings,
  });
  const models = [runSummaries, workerSummaries, notifications];
  const { app = { models, agents, engine } } = options;
  const khala = await createKhala(app, { config, dev: true, demo, dashboard: page.folder });
  const { url } = khala;
  const token = async () => {
    const { scopes } = (await (await fetch(`${url}/ops/v1/about`)).json()) as { scopes: string[] };
    return (await khala.auth.issuer!.mint({ ...DEVELOPER, scopes })).token;
  };
  return {
    khala,
    url,
    database: database.database,
    token,
    async post<T>(path: string, body: unknown) {
      const response = await fetch(url + path, {
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${await token()}` },
        body: JSON.stringify(body),
      });
      if (!response.ok)
        throw new Error(`${path} was answered with ${response.status}: ${await response.text()}`);
      return (response.status === 204 ? undefined : await response.json()) as T;
    },
    async [Symbol.asyncDispose]() {
      await khala.stop();
      await database[Symbol.asyncDispose]();
      await page[Symbol.asyncDispose]();
    },
  };
}

interface BuiltPage extends AsyncDisposable {
  readonly folder: string;
}

/** The page built by the install if it is newer than the sources, otherwise a new build. */
async function builtPage(): Promise<BuiltPage> {
  const built = join(FOLDER, "dist");
  const index = join(built, "index.html");
  if (existsSync(index) && (await stat(index)).mtimeMs > (await newestSource()))
    return { folder: built, async [Symbol.asyncDispose]() {} };
  const folder = await mkdtemp(join(tmpdir(), "khala-dashboard-"));
  const require = createRequire(join(FOLDER, "package.json"));
  const { build } = (await import(pathToFileURL(require.resolve("vite")).href)) as typeof import("vite");
  await build({
    root: FOLDER,
    configFile: join(FOLDER, "vite.config.ts"),
    logLevel: "error",
    build: { outDir: folder, emptyOutDir: true },
  });
  return { folder, [Symbol.asyncDispose]: () => rm(folder, { recursive: true }) };
}

async function newestSource(): Promise<number> {
  const client = join(FOLDER, "..", "..", "packages", "client", "src");
  const times = await Promise.all(
    [join(FOLDER, "src"), client].map(async (folder) => {
      const entries = await readdir(folder, { recursive: true, withFileTypes: true });
      const files = entries.filter((entry) => entry.isFile());
      return Promise.all(
        files.map(async ({ parentPath, name }) => (await stat(join(parentPath, name))).mtimeMs),
      );
    }),
  );
  return times.flat().reduce((newest, time) => Math.max(newest, time), 0);
}
