import type { Config } from "@khala/server";
import { checkBackends } from "../checks/backends.ts";
import { checkDatabase } from "../checks/database.ts";
import { type Finding, ok, problem, warning } from "../checks/finding.ts";
import { checkDataFolder, checkEmbedded, checkKeys, checkNode, checkPort } from "../checks/machine.ts";
import { readSettings, type SettingOptions, unknownSettings } from "../environment.ts";
import { EXIT } from "../failure.ts";
import { paint, print } from "../terminal/terminal.ts";

const MARKS = { ok: paint("green", "✓"), warning: paint("yellow", "!"), problem: paint("red", "✗") };

/** `khala doctor`: checks everything a server needs here, and prints how to fix problems. */
export async function doctor(options: SettingOptions & { readonly json?: boolean }): Promise<void> {
  const findings = await examine(options);
  if (options.json) print(JSON.stringify(findings, null, 2));
  else {
    for (const { check, state, detail, fix } of findings) {
      print(`${MARKS[state]} ${check}: ${detail}`);
      if (fix) print(`  ${paint("dim", fix)}`);
    }
  }
  process.exitCode = findings.some(({ state }) => state === "problem") ? EXIT.found : EXIT.ok;
}

async function examine(options: SettingOptions): Promise<Finding[]> {
  const found = [checkNode()];
  let config: Config;
  try {
    config = await readSettings(options);
  } catch (error) {
    return [
      ...found,
      problem("settings", (error as Error).message, "Correct them and run the command again."),
    ];
  }
  const unknown = await unknownSettings();
  for (const { problem: detail, fix } of unknown) found.push(warning("settings", detail, fix));
  if (unknown.length === 0) found.push(ok("settings", "all valid; `khala config` lists them"));
  if (!config.DATABASE_URL) found.push(checkEmbedded());
  found.push(checkDataFolder(config), await checkPort(config));
  return [
    ...found,
    ...(await checkDatabase(config)),
    ...(await checkBackends(config)),
    await checkKeys(config),
  ];
}
