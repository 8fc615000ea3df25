import { closeSync, fdatasyncSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import os from "node:os";
import { join } from "node:path";
import { percentile } from "./stats.ts";

/** The machine in one line each, as a reader of the results needs to know it. */
export function describeMachine(): string[] {
  const cpus = os.cpus();
  return [
    `${cpus.length} × ${cpus[0]?.model ?? "unknown CPU"}, ${Math.round(os.totalmem() / 2 ** 30)} GiB, ${os.type()} ${os.release()}`,
    `the disk acknowledges an 8 KiB fdatasync in ${syncMicroseconds()} µs (median), which durable figures depend on`,
    "server, load generator and database share these cores; all traffic is on loopback",
  ];
}

function syncMicroseconds(): number {
  const folder = mkdtempSync(join(os.tmpdir(), "khala-bench-sync-"));
  const file = openSync(join(folder, "probe"), "w");
  const block = Buffer.alloc(8_192, 1);
  const times: number[] = [];
  try {
    for (let i = 0; i < 128; i++) {
      writeSync(file, block, 0, block.length, (i % 16) * block.length);
      const started = performance.now();
      fdatasyncSync(file);
      // The first round allocates the file's blocks, which a database's log has done long before.
      if (i >= 16) times.push((performance.now() - started) * 1_000);
    }
  } finally {
    closeSync(file);
    rmSync(folder, { recursive: true });
  }
  return Math.round(
    percentile(
      times.sort((a, b) => a - b),
      0.5,
    ),
  );
}
