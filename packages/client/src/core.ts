import { browserEnvironment } from "./browser_environment.ts";
import { type OwnConnection, openConnection } from "./connection/connection.ts";
import { type TokenSource, Tokens } from "./connection/tokens.ts";
import type { Environment } from "./environment.ts";
import { fetchHttp, type Http } from "./http.ts";
import type { Log } from "./log.ts";
import { memory } from "./storage/memory.ts";
import type { Storage } from "./storage/storage.ts";
import { openAppends } from "./sync/appends/appends.ts";
import type { Appends } from "./sync/appends/appends_port.ts";
import { identify } from "./sync/identity.ts";
import type { SyncPlane, Topics } from "./sync/plane_port.ts";
import { type SocketSource, socketSource } from "./sync/socket_source.ts";
import { openSync } from "./sync/sync_plane.ts";

/** Options of every client. */
export interface CoreOptions {
  /** The server's address, such as "https://khala.example.com". */
  readonly url: string;
  /** A token, or a function that gets one: called again before it expires and after a refusal. */
  readonly token: TokenSource;
  /** Where documents and recent conversations survive a reload. Default: memory. */
  readonly storage?: Storage;
  readonly environment?: Environment;
  /** Receives diagnostics, such as a full storage. */
  readonly log?: Log;
}

/** The parts that every client has. The planes other than sync are built on it. */
export interface Core<T extends Topics = object, A extends object = object> {
  readonly environment: Environment;
  readonly http: Http;
  /** The socket of this tab. */
  readonly connection: OwnConnection;
  /** Follows nothing until it has a source. */
  readonly sync: SyncPlane<T> & Appends<A>;
  /** The plane's source while this tab holds the socket. */
  readonly socketSource: SocketSource;
  readonly log: Log;
  /** Determines the scope, once. */
  identify(): void;
  /** Disconnects, and closes the storage after `written` has resolved. */
  close(written?: Promise<void>): Promise<void>;
}

/** Composes environment, tokens, HTTP, connection and sync. `onScope` receives the scope, as the plane does. */
export function openCore<T extends Topics, A extends object = object>(
  options: CoreOptions,
  onScope: (scope: string) => void = () => {},
): Core<T, A> {
  const { environment = browserEnvironment(), storage = memory(), log = () => {} } = options;
  const url = options.url.replace(/\/+$/, "");
  const tokens = new Tokens(options.token, environment);
  const http = fetchHttp({ url, environment, tokens });
  const connection = openConnection({ url, environment, tokens, diagnose: http.diagnose, log });
  const source = socketSource({ connection, http, environment });
  const findOut = identify(
    { url, tokens, environment, storage, log },
    {
      onScope(scope) {
        queue.setScope(scope);
        sync.setScope(scope);
        onScope(scope);
      },
      onFailure(error) {
        sync.unidentified(error);
        connection.connect();
      },
    },
  );
  const tellWhy = () => {
    const { error } = connection.status();
    if (error) sync.unidentified(error);
  };
  const onScopeNeeded = () => {
    findOut();
    tellWhy();
  };
  const plane = openSync<T>({ environment, http, storage, log, onScopeNeeded });
  const queue = openAppends({ environment, http, storage, log, sync: plane, onScopeNeeded: findOut });
  const sync = Object.assign(plane, queue.appends as Appends<A>);
  connection.subscribe(tellWhy);
  const stopRetrying = tokens.onToken(() => source.retryForbidden());
  return {
    environment,
    http,
    connection,
    sync,
    socketSource: source,
    log,
    identify: findOut,
    async close(written) {
      stopRetrying();
      const stored = queue.close();
      sync.close();
      connection.close();
      await Promise.all([written, stored]);
      await storage.close();
    },
  };
}
