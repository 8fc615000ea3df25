import type { ObservableResult } from "@opentelemetry/api";
import type { Context } from "../../kit/context.ts";
import type { Service } from "../../kit/service.ts";
import type { Models } from "../model.ts";
import { type FollowerOptions, startSecondSinkFollower } from "./mirror_follower.ts";

/** Dual publish: one follower per topic. */
export interface SecondSinkFollowers extends Service {
  /** Wakeup: the topic has news. */
  wake(topic: string): void;
}

/** Starts following every topic for a second sink, and reports how far behind it is. */
export function startSecondSink(
  models: Models,
  context: Context,
  options: Omit<FollowerOptions, "timeoutMs" | "retryMs">,
): SecondSinkFollowers {
  const limits = { timeoutMs: 30_000, retryMs: { base: 250, cap: 30_000 } };
  const followers = new Map(
    models.all.map((model) => [
      model.topic,
      startSecondSinkFollower(model, context, { ...limits, ...options }),
    ]),
  );
  const gauge = context.telemetry.meter.createObservableGauge("khala_sync_second_sink_lag", {
    description: "Journal rows that the second sink has not got yet, by topic",
  });
  const observe = (result: ObservableResult) => {
    if (!options.active()) return;
    for (const [topic, follower] of followers) result.observe(Number(follower.lag()), { topic });
  };
  gauge.addCallback(observe);
  return {
    wake: (topic) => followers.get(topic)?.wake(),
    async stop() {
      gauge.removeCallback(observe);
      await Promise.all([...followers.values()].map((follower) => follower.stop()));
    },
  };
}
