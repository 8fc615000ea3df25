import { execFileSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmdirSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually } from "@khala/test-support/kit/eventually";
import { PostgresServer } from "@khala/test-support/postgres/server";
import { onTestFinished, test } from "vitest";
import { Chaos } from "./support/chaos.ts";

// Only root may mount a disk that is small enough to be filled.
const mayMount = process.platform === "linux" && process.getuid?.() === 0;

const run = (program: string, ...args: string[]) => execFileSync(program, args, { timeout: 10_000 });

/** A disk of its own; unmounted when the test is over. */
function smallDisk(mebibytes: number): string {
  const folder = mkdtempSync(join(tmpdir(), "khala-disk-"));
  run("mount", "-t", "tmpfs", "-o", `size=${mebibytes}m`, "tmpfs", folder);
  onTestFinished(() => {
    run("umount", folder);
    rmdirSync(folder);
  });
  return folder;
}

/** Takes all the room that a disk has left; the answer gives it back. */
function fill(folder: string): () => void {
  const file = join(folder, "filler");
  const opened = openSync(file, "w");
  try {
    for (;;) writeSync(opened, Buffer.alloc(1 << 16));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
  } finally {
    closeSync(opened);
  }
  return () => rmSync(file);
}

test.skipIf(!mayMount)(
  "a full disk refuses writes, and loses and repeats nothing once there is room",
  {
    timeout: 240_000,
  },
  async () => {
    const disk = smallDisk(300);
    await using postgres = await PostgresServer.start(join(disk, "postgres"));
    await using chaos = new Chaos(postgres, 17);
    await Promise.all([chaos.gateway(), chaos.gateway()]);
    await chaos.people();
    chaos.startWriters();
    await chaos.steps(50);
    const free = fill(disk);
    const retries = () => chaos.writers.reduce((sum, writer) => sum + writer.retries, 0);
    const before = retries();
    // There is room in the segment of the log that is open: large documents fill it soon.
    const grown = chaos.writers[0]!.grow(60);
    await eventually("writes are refused", () => retries() > before + 10);
    free();
    // Without room for its log PostgreSQL ends, sooner or later, and its operator starts it again.
    await eventually("PostgreSQL answers", async () => {
      if (!postgres.running) await postgres.start();
      return postgres.database.query({ text: "SELECT 1" }).then(
        () => true,
        () => false,
      );
    });
    await grown;
    await chaos.steps(50);
    await chaos.stopWriters();
    await chaos.agree();
  },
);
