import { linkSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { sha256 } from "../../../kit/hash.ts";
import { MIN_SECRET_BYTES } from "./algorithms.ts";

/** A signing key of a development server. */
export interface DevKey {
  readonly kid: string;
  readonly secret: Buffer;
}

/** The key in `file`, made on the first start. Processes that start at the same time all get the same one. */
export function loadOrCreateDevKey(file: string, newSecret: () => Buffer): DevKey {
  const there = read(file);
  if (there) return there;
  create(file, newSecret());
  const made = read(file);
  if (made) return made;
  throw new Error(`The key file ${file} was deleted while it was being created. Start again.`);
}

function read(file: string): DevKey | undefined {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
  const secret = Buffer.from(text, "base64url");
  if (!/^[\w-]+\n?$/.test(text) || secret.length < MIN_SECRET_BYTES) {
    throw new Error(
      `The key file ${file} is damaged. Delete it and start again. Tokens from before stop working.`,
    );
  }
  return { kid: `dev-${sha256(secret).slice(0, 8)}`, secret };
}

/** Written in full beside the file and then linked to its name, which fails when another process was faster. */
function create(file: string, secret: Buffer): void {
  if (secret.length < MIN_SECRET_BYTES) throw new Error(`A secret needs ${MIN_SECRET_BYTES} bytes or more.`);
  mkdirSync(dirname(file), { recursive: true });
  const folder = mkdtempSync(`${file}.`);
  try {
    const draft = join(folder, "key");
    writeFileSync(draft, `${secret.toString("base64url")}\n`, { mode: 0o600, flush: true });
    linkSync(draft, file);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}
