import { readSettings, type SettingOptions, warnOfUnknownSettings } from "../environment.ts";
import { EXIT, Failure } from "../failure.ts";
import { dashboardFolder } from "../local/dashboard_folder.ts";
import { runUntilSignal } from "../local/run_until_signal.ts";

export interface ServeOptions extends SettingOptions {
  readonly app?: string;
}

/** `khala serve`: production, without generated keys and demo activity. */
export async function serve(options: ServeOptions): Promise<void> {
  const [{ createKhala }, { loadApp }, { openLog }] = await Promise.all([
    import("@khala/server"),
    import("../local/load_app.ts"),
    import("../terminal/log.ts"),
  ]);
  const config = await readSettings(options);
  if (!config.KHALA_AUTH_SECRETS && !config.KHALA_AUTH_JWKS_URL && !config.KHALA_AUTH_JWKS_FILE) {
    throw new Failure(
      "`khala serve` needs keys: set KHALA_AUTH_SECRETS (kid:base64 of 32 bytes or more), KHALA_AUTH_JWKS_URL or KHALA_AUTH_JWKS_FILE.",
      EXIT.usage,
    );
  }
  const log = openLog(config.KHALA_LOG_LEVEL, process.stdout);
  await warnOfUnknownSettings(log);
  await runUntilSignal(config, log, async () => {
    const app = await loadApp(options.app);
    const dashboard = dashboardFolder();
    const khala = await createKhala(app, { config, log, ...(dashboard && { dashboard }) });
    // At any log level: with port 0 only this line has the address.
    const topics = app.models.all.map(({ topic }) => topic);
    log.child({}, { level: "info" }).info({ url: khala.url, topics }, `ready at ${khala.url}`);
    return khala;
  });
}
