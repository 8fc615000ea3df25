import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CONV_ID } from "@khala/contracts";

export interface DefaultConversationOptions {
  /** The file that remembers it. */
  readonly folder: string;
  readonly url: string;
  /** Whose conversation it is. */
  readonly token: string;
  readonly newId: () => string;
}

/**
 * The conversation of `khala chat` without --conv: one per person and server, remembered in the data folder. Its id is random, because a
 * conversation belongs to the org and subject that name it first.
 */
export function defaultConversation(options: DefaultConversationOptions): {
  readonly convId: string;
  readonly isNew: boolean;
} {
  const { folder, url, token, newId } = options;
  const file = join(folder, "chat.json");
  const known = read(file);
  const key = JSON.stringify([url, ...personOf(token)]);
  const found = known[key];
  if (typeof found === "string" && CONV_ID.test(found)) return { convId: found, isNew: false };
  const convId = `terminal-${newId()}`;
  write(folder, file, { ...known, [key]: convId });
  return { convId, isNew: true };
}

/** Org and subject, not verified: the server does that. */
function personOf(token: string): unknown[] {
  try {
    const { oa_org_id, sub } = JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString());
    return [oa_org_id, sub];
  } catch {
    return [];
  }
}

function read(file: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(readFileSync(file, "utf8"));
    return typeof value === "object" && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}

/** If nothing can be written, the conversation is new each time; its id is printed. */
function write(folder: string, file: string, content: object): void {
  try {
    mkdirSync(folder, { recursive: true });
    writeFileSync(`${file}.new`, `${JSON.stringify(content, null, 2)}\n`, { mode: 0o600 });
    renameSync(`${file}.new`, file);
  } catch {
    // It only saves typing --conv.
  }
}
