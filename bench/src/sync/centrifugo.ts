import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { freePort } from "../kit/free_port.ts";
import { tempFolder } from "../kit/temp_folder.ts";

/** A Centrifugo server in a process of its own. */
export interface Centrifugo extends AsyncDisposable {
  readonly pid: number;
  readonly port: number;
}

/** Where it keeps history: in memory, or durably in PostgreSQL. */
export type CentrifugoBroker =
  | { readonly type: "memory" }
  | { readonly type: "postgres"; readonly dsn: string; readonly shards?: number };

/** The key of its HTTP API here. */
export const CENTRIFUGO_KEY = "bench";

/** The version of the Centrifugo that is installed, or undefined when there is none. */
export function centrifugoVersion(): string | undefined {
  try {
    return execFileSync("centrifugo", ["version"], { encoding: "utf8", timeout: 10_000 }).trim();
  } catch {
    return undefined;
  }
}

/** Starts Centrifugo with history and recovery, as Khala has them, and otherwise its defaults. */
export async function startCentrifugo(broker: CentrifugoBroker): Promise<Centrifugo> {
  const folder = tempFolder("centrifugo");
  const port = await freePort();
  const file = join(folder.path, "config.json");
  await writeFile(file, JSON.stringify(settings(broker, port)));
  const child = spawn("centrifugo", ["-c", file], { stdio: ["ignore", "inherit", "inherit"] });
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  folder.removeLast();
  const stop = async () => {
    process.off("exit", kill);
    if (child.exitCode === null && child.signalCode === null) {
      const gone = once(child, "exit");
      child.kill("SIGKILL");
      await gone;
    }
    folder[Symbol.dispose]();
  };
  const deadline = performance.now() + 20_000;
  for (;;) {
    const healthy = await fetch(`http://127.0.0.1:${port}/health`).then(
      (response) => response.ok,
      () => false,
    );
    if (healthy) return { pid: child.pid!, port, [Symbol.asyncDispose]: stop };
    if (child.exitCode !== null || performance.now() > deadline) {
      await stop();
      throw new Error("Centrifugo did not start; its log is above.");
    }
    await setTimeout(50);
  }
}

function settings(broker: CentrifugoBroker, port: number): object {
  const durable = broker.type === "postgres" && {
    broker: {
      enabled: true,
      type: "postgres",
      postgres: {
        dsn: broker.dsn,
        use_notify: true,
        ...(broker.shards !== undefined && { num_shards: broker.shards }),
      },
    },
  };
  return {
    http_server: { address: "127.0.0.1", port },
    log: { level: "warn" },
    usage_stats: { disabled: true },
    health: { enabled: true },
    http_api: { key: CENTRIFUGO_KEY },
    client: { allow_anonymous_connect_without_token: true },
    channel: {
      without_namespace: {
        history_size: 100,
        history_ttl: "300s",
        force_recovery: true,
        allow_subscribe_for_client: true,
        allow_subscribe_for_anonymous: true,
      },
    },
    ...(durable || { engine: { type: "memory" } }),
  };
}
