import { randomUUID } from "node:crypto";
import { flushCompileCache } from "node:module";
import { DEV } from "../client/tokens.ts";
import { readSettings, type SettingOptions, warnOfUnknownSettings } from "../environment.ts";
import { everyScope, namesOf, rememberApp } from "../local/app_names.ts";
import { banner } from "../local/banner.ts";
import { dashboardFolder } from "../local/dashboard_folder.ts";
import { runUntilSignal } from "../local/run_until_signal.ts";

export interface DevOptions extends SettingOptions {
  readonly app?: string;
  readonly activity: boolean;
  readonly watch?: boolean;
}

const ACTIVITY_MS = 2_000;
const FLUSH_MS = 5_000;

/** `khala dev`: a server for one developer, with everything that it needs. */
export async function dev(options: DevOptions): Promise<void> {
  if (options.watch) return (await import("../local/watch.ts")).watch();
  const began = performance.now();
  const [{ createKhala }, { loadApp }, { openLog }] = await Promise.all([
    import("@khala/server"),
    import("../local/load_app.ts"),
    import("../terminal/log.ts"),
  ]);
  const config = await readSettings(options);
  // Also in a pipe, such as that of a program that runs this beside a bundler: people read it.
  const log = openLog(config.KHALA_LOG_LEVEL, process.stderr, true);
  await warnOfUnknownSettings(log);

  await runUntilSignal(config, log, async () => {
    const app = await loadApp(options.app);
    const dashboard = dashboardFolder();
    const khala = await createKhala(app, {
      config,
      log,
      dev: true,
      demo: !options.app,
      ...(dashboard && { dashboard }),
    });
    let stopActivity = async () => {};
    if (!options.app && options.activity) {
      const { startActivity } = await import("../demo/activity.ts");
      stopActivity = startActivity(khala, {
        everyMs: ACTIVITY_MS,
        newId: randomUUID,
        onError: (error) =>
          log.warn({ err: (error as Error).message }, "the demo could not generate activity"),
      });
    }
    const names = namesOf(app);
    rememberApp(config.KHALA_DATA_DIR, names);
    const token = await khala.auth.issuer?.mint({
      sub: DEV.sub,
      org_id: DEV.org,
      scopes: everyScope(names),
      ttl_s: config.KHALA_AUTH_MAX_TTL_S,
    });
    banner({
      khala,
      config,
      token,
      app,
      seconds: (performance.now() - began) / 1_000,
      page: dashboard !== undefined,
    });
    // Flushed early: a process that is killed would not write it.
    setTimeout(flushCompileCache, FLUSH_MS).unref();
    return {
      async stop() {
        await stopActivity();
        await khala.stop();
      },
    };
  });
}
