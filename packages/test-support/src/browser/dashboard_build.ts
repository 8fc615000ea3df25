import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { withFileLock } from "../processes/file_lock.ts";

const ROOT = join(import.meta.dirname, "../../../..");
const PAGE = join(ROOT, "apps/dashboard/dist/index.html");
const BUILD_MS = 120_000;
/** One lock per checkout. */
const LOCK = join(
  tmpdir(),
  `khala-dashboard-${createHash("sha256").update(ROOT).digest("hex").slice(0, 16)}.lock`,
);

/** Builds the page of `khala dev` unless the install did: an install may skip its scripts. */
export function ensureDashboard(): Promise<void> {
  return ensureBuilt({ page: PAGE, lock: LOCK, waitMs: 2 * BUILD_MS }, async () => {
    await promisify(execFile)(process.execPath, [join(ROOT, "scripts/build/dashboard.ts")], {
      timeout: BUILD_MS,
    });
  });
}

/** Builds a page unless it exists: test files that start at the same time build it once. */
export async function ensureBuilt(
  where: { readonly page: string; readonly lock: string; readonly waitMs: number },
  build: () => Promise<void>,
): Promise<void> {
  if (existsSync(where.page)) return;
  await withFileLock(where.lock, where, async () => {
    if (existsSync(where.page)) return;
    await build();
    if (!existsSync(where.page))
      throw new Error("The dashboard was not built. Install development dependencies.");
  });
}
