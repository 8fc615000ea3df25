import { join } from "node:path";
import { cached, findCached, onPath, step } from "../kafka/cache.ts";

const VERSION = "3.22.0";
const CACHE = `helm-${VERSION}`;

/**
 * helm: the one that `KHALA_TEST_HELM` names, the one on PATH, one that was built before, or, with `KHALA_TEST_HELM=build`, one that Go
 * builds now, which takes minutes. Undefined on a machine without it.
 */
export async function findHelm(signal: AbortSignal): Promise<string | undefined> {
  const { KHALA_TEST_HELM = "" } = process.env;
  const build = KHALA_TEST_HELM === "build";
  if (KHALA_TEST_HELM && !build) return KHALA_TEST_HELM;
  const before = await findCached(CACHE);
  const found = (await onPath("helm")) ?? (before && join(before, "helm"));
  if (found || !build) return found;
  const folder = await cached(CACHE, async (making) => {
    const env = { GOBIN: making, CGO_ENABLED: "0" };
    await step("go", ["install", `helm.sh/helm/v3/cmd/helm@v${VERSION}`], { cwd: making, env, signal });
  });
  return join(folder, "helm");
}
