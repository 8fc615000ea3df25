import type { Context } from "@khala/server/blackboard";
import type { KafkaSettings } from "./client.ts";

/** The client calls much an error that it copes with itself. */
const LEVELS = { error: "warn", warn: "info", info: "debug", debug: "trace" } as const;
const EVERY_MS = 10_000;
const MAX_KNOWN = 200;

/** Takes what the client says. While a broker is away it says the same many times a second: each is heard now and then. */
export function clientLog({ log, clock }: Pick<Context, "log" | "clock">): NonNullable<KafkaSettings["log"]> {
  const heard = new Map<string, number>();
  return (level, message) => {
    const kind = message.replace(/\d+/g, "#");
    const now = clock.now();
    if (now - (heard.get(kind) ?? Number.NEGATIVE_INFINITY) < EVERY_MS) return;
    if (heard.size >= MAX_KNOWN) heard.clear();
    heard.set(kind, now);
    log[LEVELS[level]]({ service: "kafka" }, message);
  };
}
