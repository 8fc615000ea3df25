import { createKhala, defineApp, type Khala, readConfig, runSummaries } from "@khala/server";
import { AUTH_SECRETS } from "../tokens.ts";

/** Opens Khala with its own defaults on a database, its gateway on a free port. */
export function openKhala(url: string): Promise<Khala> {
  const config = readConfig({
    DATABASE_URL: url,
    KHALA_PORT: "0",
    KHALA_LOG_LEVEL: "error",
    KHALA_AUTH_SECRETS: AUTH_SECRETS,
  });
  return createKhala(defineApp({ models: [runSummaries] }), { config });
}
