import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SCOPES } from "@khala/contracts";
import type { App } from "@khala/server";

/** The topics and streams of an app: what commands need of it, without loading it. */
export interface AppNames {
  readonly topics: readonly string[];
  /** By kind. */
  readonly streams: Readonly<Record<string, { readonly path: string; readonly scope: string }>>;
}

/** The names of every server; a test compares them with an empty app. Listed here so that small commands need not load the server. */
export const BUILT_IN: AppNames = {
  topics: [],
  streams: {
    run: { path: "/runtime/v1/runs", scope: SCOPES.runtimeWrite },
    worker: { path: "/runtime/v1/workers", scope: SCOPES.runtimeWrite },
  },
};

/** The names of an app. */
export function namesOf({ models, streams }: App): AppNames {
  return {
    topics: models.all.map(({ topic }) => topic),
    streams: Object.fromEntries(streams.map(({ kind, path, scope }) => [kind, { path, scope }])),
  };
}

/** Every topic and every right of an app. */
export function everyScope({ topics, streams }: AppNames): string[] {
  const rights = [...Object.values(streams).map(({ scope }) => scope), ...Object.values(SCOPES)];
  return [...topics, ...new Set(rights)];
}

/** Remembers the app that `khala dev` serves, beside the key that its tokens are signed with. */
export function rememberApp(folder: string, names: AppNames): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, FILE), `${JSON.stringify(names, null, 2)}\n`);
}

/** The app of the file, else the one that `khala dev` served last from the folder, else what every server has. */
export async function findNames(file: string | undefined, folder: string): Promise<AppNames> {
  if (file) return namesOf(await (await import("./load_app.ts")).loadApp(file));
  try {
    return JSON.parse(readFileSync(join(folder, FILE), "utf8")) as AppNames;
  } catch {
    // No server for development has been started here.
    return BUILT_IN;
  }
}

const FILE = "app.json";
