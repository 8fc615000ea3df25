import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";

const ROOT = join(import.meta.dirname, "../..");
const PAGE = join(ROOT, "apps/dashboard/dist/index.html");

/** Makes sure that `khala dev` has a page to show: the install builds it, unless it was told to run no scripts. */
export async function ensureDashboard(): Promise<void> {
  if (existsSync(PAGE)) return;
  await promisify(execFile)(process.execPath, [join(ROOT, "scripts/build_dashboard.ts")], {
    timeout: 120_000,
  });
  if (!existsSync(PAGE)) throw new Error("The dashboard was not built. Install development dependencies.");
}
