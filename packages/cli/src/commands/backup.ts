import { type BackupProgress, createBackup, restoreBackup, verifyBackup } from "@khala/server/operations";
import { readSettings, type SettingOptions } from "../environment.ts";
import { untilStopped } from "../local/operate.ts";
import { type Progress, showProgress } from "../terminal/progress.ts";
import { print } from "../terminal/terminal.ts";

export interface BackupCommandOptions extends SettingOptions {
  readonly json?: boolean;
}

/** `khala backup`: writes the database into a file. */
export async function backup(file: string, options: BackupCommandOptions): Promise<void> {
  const config = await readSettings(options);
  using progress = showProgress();
  const { tables, rows } = await untilStopped("Stopped. The unfinished backup is deleted.", (signal) =>
    createBackup({ config, file, signal, onProgress: show(progress) }),
  );
  if (options.json) print(JSON.stringify({ file, tables, rows }));
  else print(`${file} has ${rows} rows of ${tables} tables and is verified.`);
}

/** `khala backup verify`: reads a backup and checks it. */
export async function verify(file: string, options: BackupCommandOptions): Promise<void> {
  using progress = showProgress();
  const { tables, rows } = await untilStopped("Stopped.", (signal) =>
    verifyBackup({ file, signal, onProgress: show(progress) }),
  );
  if (options.json) print(JSON.stringify({ file, tables, rows }));
  else print(`${file} is intact: ${rows} rows of ${tables} tables.`);
}

/** `khala restore`: puts a backup into the database. */
export async function restore(
  file: string,
  options: BackupCommandOptions & { readonly replace?: boolean },
): Promise<void> {
  const config = await readSettings(options);
  const { replace = false } = options;
  using progress = showProgress();
  const { tables, rows, epoch } = await untilStopped("Stopped. Nothing was changed.", (signal) =>
    restoreBackup({ config, file, replace, signal, onProgress: show(progress) }),
  );
  if (options.json) print(JSON.stringify({ file, tables, rows, epoch }));
  else print(`Restored ${rows} rows of ${tables} tables. The epoch is now ${epoch}.`);
}

function show(progress: Progress): (state: BackupProgress) => void {
  return ({ table, nth, tables, bytes, share }) =>
    progress.update(() => `table ${nth} of ${tables}, ${table}: ${(bytes / 1e6).toFixed(1)} MB`, share);
}
