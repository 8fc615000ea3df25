import type { Config } from "@khala/server";
import { EXIT, Failure } from "./failure.ts";

/** The environment of this process. Nothing else in the command reads it. */
export const environment: Readonly<Record<string, string | undefined>> = process.env;

/** Whether the command runs from its source, in the repository. */
export const IN_REPOSITORY = import.meta.filename.endsWith(".ts");

/** How the command is called here: through npm, since an app's own install is not on the PATH. */
export const COMMAND = IN_REPOSITORY ? "npm run khala --" : "npx khala";

/** Settings from options of the command line; they override the environment. */
export interface SettingOptions {
  readonly host?: string;
  readonly port?: string;
  readonly dataDir?: string;
  readonly logLevel?: string;
  /** The retention of the journal. */
  readonly hours?: string;
}

/** The environment, overridden by the options of the command line. */
function withOptions(options: SettingOptions): Record<string, string | undefined> {
  return {
    ...environment,
    ...(options.host !== undefined && { KHALA_HOST: options.host }),
    ...(options.port !== undefined && { KHALA_PORT: options.port }),
    ...(options.dataDir !== undefined && { KHALA_DATA_DIR: options.dataDir }),
    ...(options.hours !== undefined && { KHALA_RETENTION_HOURS: options.hours }),
    ...(options.logLevel !== undefined && { KHALA_LOG_LEVEL: options.logLevel }),
  };
}

/** The address of the server that a command calls. */
export function serverUrl(url: string | undefined): string {
  const { KHALA_URL, KHALA_HOST = "127.0.0.1", KHALA_PORT = "4000" } = environment;
  const named = url ?? KHALA_URL;
  if (named) return named.replace(/\/+$/, "");
  // A server that listens on every address is found on this one.
  const host = ["0.0.0.0", "::"].includes(KHALA_HOST) ? "127.0.0.1" : KHALA_HOST;
  return `http://${host.includes(":") ? `[${host}]` : host}:${KHALA_PORT}`;
}

/** The data folder of this place, for commands that need no other setting. */
export function dataFolder(): string {
  return environment.KHALA_DATA_DIR || ".khala";
}

/** Whether errors are printed with their stacks. */
export function wantsStack(argv: readonly string[]): boolean {
  return argv.includes("--verbose") || ["debug", "trace"].includes(environment.KHALA_LOG_LEVEL ?? "");
}

/** Read by commands alone. */
const OF_COMMANDS = ["KHALA_URL", "KHALA_TOKEN"];

/** Settings of the environment that no server and no command reads, such as misspelt ones, each with a message. */
export async function unknownSettings(): Promise<{ name: string; problem: string; fix: string }[]> {
  const { findUnknownSettings } = await import("@khala/server");
  return findUnknownSettings(environment, OF_COMMANDS).map(({ name, nearest }) => ({
    name,
    problem: `${name} is not a setting, and has no effect`,
    fix: nearest ? `Did you mean ${nearest}?` : "Remove it; `khala config` lists all settings.",
  }));
}

/** Logs each unknown setting, at the start of a server. */
export async function warnOfUnknownSettings(log: { warn(message: string): void }): Promise<void> {
  for (const { problem, fix } of await unknownSettings()) log.warn(`${problem}. ${fix}`);
}

/** Reads the settings of the environment and the command line. */
export async function readSettings(options: SettingOptions): Promise<Config> {
  const { readConfig } = await import("@khala/server");
  try {
    return readConfig(withOptions(options));
  } catch (cause) {
    throw new Failure((cause as Error).message, EXIT.usage, { cause });
  }
}
