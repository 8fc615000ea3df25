import { KhalaError } from "@khala/contracts";
import type { Viewer } from "../../access/viewer.ts";
import type { Context } from "../../kit/context.ts";
import { readUri } from "./resources.ts";
import { type Watch, type WatchOptions, watch } from "./watch.ts";

/** Resources that one client may watch at a time. */
const MAX_WATCHES = 100;

/** The resources that one client watches. */
export class Watches {
  readonly #context: Context;
  readonly #options: WatchOptions;
  readonly #changed: (uri: string) => void;
  /** Undefined for one that is being opened. */
  readonly #watched = new Map<string, Watch | undefined>();
  /** The newest one. */
  #viewer: Viewer | undefined;
  #closed = false;

  constructor(context: Context, options: WatchOptions, changed: (uri: string) => void) {
    this.#context = context;
    this.#options = options;
    this.#changed = changed;
  }

  /** Watches a resource; again is the same as once. Throws for what is not there or not the viewer's to read. */
  async add(viewer: Viewer, uri: string): Promise<void> {
    if (this.#watched.has(uri)) return;
    const resource = readUri(uri);
    if (!resource)
      throw new KhalaError("not_found", `There is no resource ${JSON.stringify(uri.slice(0, 200))}.`);
    if (this.#watched.size >= MAX_WATCHES)
      throw new KhalaError("limit_exceeded", `A client may subscribe to at most ${MAX_WATCHES} resources.`);
    // Its place is taken before anything is waited for.
    this.#watched.set(uri, undefined);
    try {
      const opened = await watch(this.#context, this.#options, viewer, resource, () => this.#changed(uri));
      // It may have been dropped since.
      if (this.#closed || !this.#watched.has(uri)) return opened.stop();
      this.#watched.set(uri, opened);
    } catch (error) {
      this.#watched.delete(uri);
      throw error;
    }
    // The token may have changed since.
    if (this.#viewer) this.#endUnlessAllowed(this.#viewer, uri);
  }

  /** The client's token is another one: what it may not watch ends. */
  viewerChanged(viewer: Viewer): void {
    this.#viewer = viewer;
    for (const uri of [...this.#watched.keys()]) this.#endUnlessAllowed(viewer, uri);
  }

  delete(uri: string): void {
    this.#watched.get(uri)?.stop();
    this.#watched.delete(uri);
  }

  close(): void {
    this.#closed = true;
    for (const uri of [...this.#watched.keys()]) this.delete(uri);
  }

  #endUnlessAllowed(viewer: Viewer, uri: string): void {
    try {
      this.#watched.get(uri)?.check(viewer);
    } catch {
      this.delete(uri);
      // A client that reads it again learns why.
      this.#changed(uri);
    }
  }
}
