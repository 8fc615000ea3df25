import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants, existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join, resolve } from "node:path";
import type { Config } from "@khala/server";
import { checkKeyFile, embeddedBinaries } from "@khala/server/operations";
import { type Finding, ok, problem, warning } from "./finding.ts";

/** Checks the version of Node. */
export function checkNode(): Finding {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  if (major > 22 || (major === 22 && minor >= 18)) return ok("node", process.version);
  return problem("node", `${process.version} is too old`, "Install Node 22.18 or later.");
}

/** Whether the PostgreSQL of the npm packages is installed and runs on this machine. */
export function checkEmbedded(): Finding {
  const platform = `${process.platform}-${process.arch}`;
  try {
    const { postgres } = embeddedBinaries();
    const version = execFileSync(postgres, ["--version"], { encoding: "utf8", timeout: 10_000 }).trim();
    return ok("embedded PostgreSQL", version);
  } catch (error) {
    const reason = (error as Error).message.split("\n")[0]!;
    const fix = "Run `npm ci` without --omit=optional, or set DATABASE_URL to a PostgreSQL 14 or later.";
    return problem("embedded PostgreSQL", `it cannot be run on ${platform}: ${reason}`, fix);
  }
}

/** Whether the data folder can be written. */
export function checkDataFolder({ KHALA_DATA_DIR }: Config): Finding {
  const folder = resolve(KHALA_DATA_DIR);
  const place = existsSync(folder) ? folder : nearest(folder);
  try {
    accessSync(place, constants.W_OK);
    rmSync(mkdtempSync(join(place, ".khala-doctor-")), { recursive: true });
    return ok("data folder", folder);
  } catch (error) {
    const fix = "Make it writable for this user, or set KHALA_DATA_DIR to another folder.";
    return problem("data folder", `${folder} cannot be written: ${(error as Error).message}`, fix);
  }
}

function nearest(folder: string): string {
  let place = folder;
  while (!existsSync(place) && place !== dirname(place)) place = dirname(place);
  return place;
}

/** Whether the port is free, or already a Khala's. */
export async function checkPort({ KHALA_HOST: host, KHALA_PORT: port }: Config): Promise<Finding> {
  if (port === 0) return ok("port", "0: picks a free port");
  const server = createServer();
  try {
    server.listen({ host, port });
    await once(server, "listening");
    server.close();
    await once(server, "close");
    return ok("port", `${host}:${port} is free`);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EADDRINUSE" && (await answersAsKhala(host, port)))
      return warning(
        "port",
        `a Khala server already answers at ${host}:${port}`,
        "Use it, or set KHALA_PORT for another.",
      );
    if (code === "EADDRINUSE")
      return problem(
        "port",
        `${host}:${port} is in use`,
        "Stop the process that listens there, or set KHALA_PORT.",
      );
    return problem(
      "port",
      `cannot listen on ${host}:${port}: ${code}`,
      "Set KHALA_HOST to an address of this machine.",
    );
  }
}

async function answersAsKhala(host: string, port: number): Promise<boolean> {
  try {
    const url = `http://${host.includes(":") ? `[${host}]` : host}:${port}/readyz`;
    const answer = await fetch(url, { signal: AbortSignal.timeout(2_000) });
    return "dependencies" in ((await answer.json()) as object);
  } catch {
    return false;
  }
}

/** Whether tokens can be verified, and who could read the key. */
export async function checkKeys(config: Config): Promise<Finding> {
  const { KHALA_AUTH_JWKS_FILE: keys } = config;
  if (keys) {
    const reason = await checkKeyFile(keys).catch((error: Error) => error.message);
    if (reason) return problem("keys", reason, "Set it to the path of a JSON Web Key Set.");
  }
  const sources = ["KHALA_AUTH_SECRETS", "KHALA_AUTH_JWKS_URL", "KHALA_AUTH_JWKS_FILE"] as const;
  const used = sources.filter((name) => config[name]);
  if (used.length > 0) return ok("keys", used.join(", "));
  const file = join(config.KHALA_DATA_DIR, "dev.key");
  if (existsSync(file) && process.platform !== "win32" && (statSync(file).mode & 0o077) !== 0)
    return problem("keys", `${file} is readable by other users`, `Run \`chmod 600 ${file}\`.`);
  const fix = "`khala dev` needs none; `khala serve` needs KHALA_AUTH_SECRETS or a key set.";
  return warning("keys", "none is set; `khala dev` creates its own", fix);
}
