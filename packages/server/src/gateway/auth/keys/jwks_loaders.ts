import { readFile, stat } from "node:fs/promises";

/** Reads a key set from where it is kept. */
export interface JwksLoader {
  /** For messages: where it is, without credentials. */
  readonly name: string;
  /** The parsed JSON, or undefined when it is unchanged since the last load and `force` is not set. */
  load(force: boolean): Promise<unknown>;
}

const MAX_BYTES = 1024 * 1024;
const TIMEOUT_MS = 5_000;

/** A key set behind an http or https URL. Redirects are refused: the keys come from the address that the operator set. */
export function jwksUrl(source: {
  readonly url: string;
  readonly timeoutMs?: number | undefined;
}): JwksLoader {
  const url = URL.parse(source.url);
  if (!url || (url.protocol !== "https:" && url.protocol !== "http:")) {
    throw new Error("The URL of the key set must start with https:// or http://.");
  }
  return {
    name: `${url.origin}${url.pathname}`,
    async load() {
      const response = await fetch(url, {
        redirect: "error",
        headers: { accept: "application/jwk-set+json, application/json" },
        signal: AbortSignal.timeout(source.timeoutMs ?? TIMEOUT_MS),
      }).catch(explainFetch);
      if (response.status !== 200) {
        await response.body?.cancel();
        throw new Error(`the answer was HTTP ${response.status}.`);
      }
      return parse(await boundedText(response));
    },
  };
}

/** A key set in a file. */
export function jwksFile(path: string): JwksLoader {
  let seen = "";
  return {
    name: path,
    async load(force) {
      // Looked at before reading: a change in between is then noticed the next time.
      const { mtimeMs, size, ino } = await stat(path);
      const version = `${mtimeMs} ${size} ${ino}`;
      if (!force && version === seen) return undefined;
      if (size > MAX_BYTES) throw new Error(`it has ${size} bytes; at most ${MAX_BYTES} are read.`);
      const json = parse(await readFile(path, "utf8"));
      seen = version;
      return json;
    },
  };
}

async function boundedText(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length;
    if (bytes > MAX_BYTES) throw new Error(`the answer is longer than ${MAX_BYTES} bytes.`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

// The parser's own message quotes the text, which may be a secret in the wrong file.
function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("it is not JSON.");
  }
}

// "fetch failed" alone is no help: the reason is in its cause.
function explainFetch(error: unknown): never {
  const cause = error instanceof Error ? error.cause : undefined;
  const reason =
    cause instanceof Error ? cause.message : error instanceof Error ? error.message : String(error);
  throw new Error(`${reason || "no answer"}.`, { cause: error });
}
