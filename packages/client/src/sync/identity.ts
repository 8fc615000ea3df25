import type { KhalaError } from "@khala/contracts";
import type { Token, Tokens } from "../connection/tokens.ts";
import type { Environment } from "../environment.ts";
import type { Log } from "../log.ts";
import type { Storage } from "../storage/storage.ts";

export interface IdentityOptions {
  readonly url: string;
  readonly tokens: Tokens;
  readonly environment: Environment;
  readonly storage: Storage;
  readonly log: Log;
}

/** Where the storage keeps whose documents were shown last. */
const PLACE = "khala.identity";

/** Whom identify tells. */
export interface IdentityHandlers {
  readonly onScope: (scope: string) => void;
  /** There is no token, so somebody has to go on asking for one. */
  readonly onFailure: (error: KhalaError) => void;
}

/**
 * Says whose documents are shown: the token's, as soon as there is one. Without a network there may be none: then those of whoever used
 * the client last on this device, until a token says otherwise. An app whose users change should clear the storage when one signs out.
 */
export function identify(options: IdentityOptions, { onScope, onFailure }: IdentityHandlers): () => void {
  const { url, tokens, environment, storage, log } = options;
  let known: string | undefined;
  let asked = false;

  function become({ org, subject }: Token): void {
    const scope = JSON.stringify([url, org, subject]);
    if (scope === known) return;
    known = scope;
    onScope(scope);
    const put = [{ key: "last", version: "1", hash: "", payload: { scope } }];
    storage
      .commit(PLACE, url, { replace: true, put, remove: [], cursor: { epoch: "", watermark: "0" } })
      .catch((error: unknown) => warn("identity_not_stored", "There will be no offline start.", error));
  }

  async function recall(): Promise<void> {
    const stored = await storage.load(PLACE, url);
    const { scope } = (stored?.documents[0]?.payload ?? {}) as { scope?: unknown };
    if (known !== undefined || typeof scope !== "string") return;
    known = scope;
    onScope(scope);
  }

  function warn(event: string, message: string, error: unknown): void {
    log({ level: "warn", event, message, error });
  }

  const tryRecall = () =>
    recall().catch((error: unknown) => warn("storage_unreadable", "There is no offline start.", error));

  tokens.onToken(become);
  return () => {
    if (asked) return;
    asked = true;
    if (environment.online?.get() === false) tryRecall();
    tokens.get().then(become, async (error: KhalaError) => {
      warn("no_token", error.message, error);
      // Whoever is not signed in is shown nothing of whoever was.
      if (error.meaning.status !== 401) await tryRecall();
      onFailure(error);
    });
  };
}
