import { StreamGone } from "../log/log.ts";
import { RELOAD_ENTRY, type RunLog } from "../runs/run_log.ts";
import { LeaseLost, type RunRecorder } from "./run_recorder.ts";

/** Appends a run's entries to its log, and hands them to its recorder. If the log is lost, the run continues in a new one. */
export class RecordedLog {
  #log: RunLog;
  readonly #recorder: RunRecorder;

  constructor(log: RunLog, recorder: RunRecorder) {
    this.#log = log;
    this.#recorder = recorder;
  }

  /** Appends entries, all or none; see RunLog. */
  async append(entries: readonly string[], tryForMs: number, signal: AbortSignal): Promise<void> {
    try {
      await this.#log.append(entries, tryForMs, signal);
    } catch (error) {
      if (!(error instanceof StreamGone)) throw error;
      await this.#continueInNewLog(error);
      await this.#log.append([RELOAD_ENTRY, ...entries], tryForMs, signal);
    }
    this.#recorder.appended(entries, this.#log.position);
  }

  /** Readers of the new log find in the table what the old one had. A deleted conversation gets no new log. */
  async #continueInNewLog(gone: StreamGone): Promise<void> {
    try {
      await this.#recorder.move(this.#log.position);
      const next = await this.#log.reopen();
      await this.#recorder.move(next.position);
      this.#log = next;
    } catch (error) {
      throw error instanceof LeaseLost ? gone : error;
    }
  }
}
