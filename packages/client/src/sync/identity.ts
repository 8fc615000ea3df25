import type { KhalaError } from "@khala/contracts";
import type { Token, Tokens } from "../connection/tokens.ts";
import type { Environment } from "../environment.ts";
import type { Log } from "../log.ts";
import { withPatience } from "../storage/driver_support.ts";
import type { Storage } from "../storage/storage.ts";

export interface IdentityOptions {
  readonly url: string;
  readonly tokens: Tokens;
  readonly environment: Environment;
  readonly storage: Storage;
  readonly log: Log;
}

/** How long the connection waits for the storage to name the last user. */
const RECALL_PATIENCE_MS = 1_000;
/** The storage scope that remembers the last user. */
const SCOPE = "khala.identity";

/** Callbacks of `identify`. */
export interface IdentityHandlers {
  readonly onScope: (scope: string) => void;
  /** There is no token; the connection keeps asking for one. */
  readonly onFailure: (error: KhalaError) => void;
}

/**
 * Determines the scope of the documents: from the token when there is one; offline, from the last user of this
 * device until a token arrives. An app with several users should clear the storage on sign-out.
 */
export function identify(options: IdentityOptions, { onScope, onFailure }: IdentityHandlers): () => void {
  const { url, tokens, environment, storage, log } = options;
  let current: string | undefined;
  let asked = false;

  function become({ org, subject }: Token): void {
    const scope = JSON.stringify([url, org, subject]);
    if (scope === current) return;
    current = scope;
    onScope(scope);
    const put = [{ key: "last", version: "1", hash: "", payload: { scope } }];
    storage
      .commit(SCOPE, url, { replace: true, put, remove: [], cursor: { epoch: "", watermark: "0" } })
      .catch((error: unknown) =>
        warn("identity_not_stored", "The next start will need a connection.", error),
      );
  }

  async function recall(): Promise<void> {
    const stored = await storage.load(SCOPE, url);
    const { scope } = (stored?.documents[0]?.payload ?? {}) as { scope?: unknown };
    if (current !== undefined || typeof scope !== "string") return;
    current = scope;
    onScope(scope);
  }

  function warn(event: string, message: string, error: unknown): void {
    log({ level: "warn", event, message, error });
  }

  const tryRecall = () =>
    recall().catch((error: unknown) => warn("storage_unreadable", "This start needs a connection.", error));

  tokens.onToken(become);
  return () => {
    if (asked) return;
    asked = true;
    if (environment.online?.get() === false) tryRecall();
    tokens.get().then(become, async (error: KhalaError) => {
      warn("no_token", error.message, error);
      // Someone who is not signed in must not see the last user's documents.
      if (error.meaning.status !== 401) await withPatience(environment, RECALL_PATIENCE_MS, tryRecall());
      onFailure(error);
    });
  };
}
