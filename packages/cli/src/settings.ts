import type { Config } from "@khala/server";
import { type SettingOptions, withOptions } from "./environment.ts";
import { EXIT, Failure } from "./failure.ts";

/** The settings that the environment and the command line make together. */
export async function readSettings(options: SettingOptions): Promise<Config> {
  const { readConfig } = await import("@khala/server");
  try {
    return readConfig(withOptions(options));
  } catch (cause) {
    throw new Failure((cause as Error).message, EXIT.usage, { cause });
  }
}
