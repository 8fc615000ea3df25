// An app whose engine leaves uncaught errors. SIGUSR2 leaves one that belongs to no run.
import { setTimeout as delay } from "node:timers/promises";
import { defineApp } from "@khala/server";
import type { EngineFactory } from "@khala/server/engines";

process.on("SIGUSR2", () => void Promise.reject(new Error("outside of every run")));

const STRAYS: Record<string, () => void> = {
  rejection: () => void delay(1).then(() => Promise.reject(new Error("hunter2 rejected"))),
  timer: () =>
    void setTimeout(() => {
      throw new Error("hunter2 thrown");
    }, 1),
};

const engine: EngineFactory = () => ({
  async *run({ message }, signal) {
    yield { text_delta: { text: "begun" } };
    STRAYS[message]?.();
    if (message in STRAYS || message === "wait") {
      const waitMs = message === "wait" ? 1_500 : 600_000;
      await delay(waitMs, undefined, { signal }).catch(() => {});
    }
    yield { text_delta: { text: " and done" } };
  },
});

export default defineApp({ models: [], engine });
