import type { DeadLetters } from "../observe/dead_letters.ts";
import type { Progress } from "../observe/progress.ts";
import type { BlackboardPlane } from "../plane.ts";
import type { ScheduledArtifacts } from "../publish/schedule.ts";
import type { Rights } from "../rights.ts";
import type { Controls } from "./controls.ts";

export interface ControlCommandsOptions {
  readonly agents: ReadonlySet<string>;
  /** Throws for an unknown agent. */
  readonly known: (agent: string) => void;
  readonly controls: Controls;
  readonly rights: Pick<Rights, "requireControl">;
  readonly schedule: Pick<ScheduledArtifacts, "cancel">;
  readonly letters: Pick<DeadLetters, "replayAll">;
  readonly progress: Pick<Progress, "correlationChanged">;
}

/** What people do to agents and to correlations. */
export type ControlCommands = Pick<
  BlackboardPlane,
  "pause" | "resume" | "cancelAgent" | "pauseCorrelation" | "cancel" | "resumeCorrelation"
>;

/** Opens the commands that pause, resume and cancel. */
export function openControlCommands(options: ControlCommandsOptions): ControlCommands {
  const { agents, known, controls, rights, schedule, letters, progress } = options;

  return {
    async pause(agent) {
      known(agent);
      await controls.pause(agent);
    },

    async resume(agent) {
      known(agent);
      await controls.resume(agent);
    },

    async cancelAgent(agent) {
      known(agent);
      await controls.cancelAgent(agent);
    },

    async pauseCorrelation(caller, correlationId) {
      await rights.requireControl(caller, correlationId);
      await controls.pauseCorrelation(caller.org, correlationId);
    },

    async cancel(caller, correlationId) {
      await rights.requireControl(caller, correlationId);
      const { org } = caller;
      await controls.cancel(org, correlationId);
      await schedule.cancel(org, correlationId);
      // Tasks that a pause holds become dead letters like the others.
      await controls.resumeCorrelation(org, correlationId);
    },

    async resumeCorrelation(caller, correlationId) {
      await rights.requireControl(caller, correlationId);
      const isCancelled = controls.cancelled(caller.org, correlationId);
      const wasPaused = await controls.resumeCorrelation(caller.org, correlationId);
      if (wasPaused && !isCancelled) return 0;
      await controls.uncancel(caller.org, correlationId);
      let replayed = 0;
      for (const agent of agents)
        replayed += (await letters.replayAll(caller, agent, { correlationId })).replayed;
      progress.correlationChanged(caller.org, correlationId);
      return replayed;
    },
  };
}
