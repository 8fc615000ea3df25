import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of the dashboard's built files; undefined where it is not installed, or not built yet. */
export function dashboardFolder(): string | undefined {
  let manifest: string;
  try {
    manifest = fileURLToPath(import.meta.resolve("@khala/dashboard/package.json"));
  } catch {
    // It is a separate package, which an app may leave out.
    return undefined;
  }
  const folder = join(dirname(manifest), "dist");
  return existsSync(join(folder, "index.html")) ? folder : undefined;
}
