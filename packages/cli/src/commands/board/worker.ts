import { COMMAND, readSettings, type SettingOptions, warnOfUnknownSettings } from "../../environment.ts";
import { EXIT, Failure } from "../../failure.ts";
import { databaseUrlOf } from "../../local/operate.ts";
import { runUntilSignal } from "../../local/run_until_signal.ts";

export interface WorkerOptions extends SettingOptions {
  readonly app?: string;
}

/** `khala worker`: the agents of an app at work, without a server. */
export async function worker(options: WorkerOptions): Promise<void> {
  const [{ createBoardWorker }, { loadApp }, { openLog }] = await Promise.all([
    import("@khala/server"),
    import("../../local/load_app.ts"),
    import("../../terminal/log.ts"),
  ]);
  const config = await readSettings(options);
  const url = databaseUrlOf(config);
  if (!url) {
    const advice = `Set DATABASE_URL, or start \`${COMMAND} dev\` first and name its folder with --data-dir.`;
    throw new Failure(`There is no database in ${config.KHALA_DATA_DIR}. ${advice}`, EXIT.usage);
  }
  const log = openLog(config.KHALA_LOG_LEVEL, process.stdout);
  await warnOfUnknownSettings(log);
  await runUntilSignal(config, log, async () => {
    const app = await loadApp(options.app);
    const agents = app.agents.map(({ name }) => name);
    if (agents.length === 0) {
      const advice = "Add agents to defineApp, or name another app with --app.";
      throw new Failure(`The app has no agents. ${advice}`, EXIT.usage);
    }
    const running = await createBoardWorker(app, { config: { ...config, DATABASE_URL: url }, log });
    const { url: address } = running;
    const watch = address
      ? `metrics at ${address}/metrics, health at ${address}/readyz`
      : "set KHALA_WORKER_PORT to monitor them";
    // At any log level: this line is the only sign that the worker runs.
    log.child({}, { level: "info" }).info({ agents, address }, `the agents are running; ${watch}`);
    return running;
  });
}
