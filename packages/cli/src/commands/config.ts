import { describeConfig, readConfig } from "@khala/server";
import { readSettings, type SettingOptions } from "../environment.ts";
import { columns, paint, print } from "../terminal/terminal.ts";

export interface ConfigOptions extends SettingOptions {
  readonly json?: boolean;
  readonly markdown?: boolean;
}

/** `khala config`: the settings of a server started here and now. Secrets are masked. */
export async function config(options: ConfigOptions): Promise<void> {
  if (options.markdown) return print(settingsTable());
  const defaults = new Map(describeConfig(readConfig({})).map(({ name, value }) => [name, format(value)]));
  const settings = describeConfig(await readSettings(options)).map(({ name, value, meaning }) => ({
    name,
    value,
    default: defaults.get(name),
    changed: format(value) !== defaults.get(name),
    meaning,
  }));
  if (options.json) return print(JSON.stringify(settings, null, 2));
  const rows = settings.map(
    ({ name, value, changed, meaning }) => [name, format(value) || "-", changed, meaning] as const,
  );
  const text = columns(rows.map(([name, value, , meaning]) => [name, value, meaning])).split("\n");
  rows.forEach(([, , changed], i) => {
    print(changed ? paint("bold", text[i]!) : text[i]!);
  });
}

/** Every setting with its default and meaning, as docs/CONFIGURATION.md has it. */
export function settingsTable(): string {
  const rows = describeConfig(readConfig({})).map(({ name, value, meaning }) => {
    const text = format(value);
    return `| \`${name}\` | ${text ? `\`${text}\`` : "-"} | ${meaning.replaceAll("|", "\\|")} |`;
  });
  return ["| setting | default | meaning |", "|---|---|---|", ...rows].join("\n");
}

function format(value: unknown): string {
  if (value === undefined) return "";
  return Array.isArray(value) ? value.join(",") : String(value);
}
