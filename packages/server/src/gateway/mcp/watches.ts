import { KhalaError } from "@khala/contracts";
import type { Viewer } from "../../access/viewer.ts";
import type { Context } from "../../kit/context.ts";
import { readUri } from "./resources.ts";
import { type WatchOptions, watch } from "./watch.ts";

/** Resources that one client may watch at a time. */
const MAX_WATCHES = 100;

/** The resources that one client watches. */
export class Watches {
  readonly #context: Context;
  readonly #options: WatchOptions;
  readonly #changed: (uri: string) => void;
  readonly #stops = new Map<string, () => void>();
  #closed = false;

  constructor(context: Context, options: WatchOptions, changed: (uri: string) => void) {
    this.#context = context;
    this.#options = options;
    this.#changed = changed;
  }

  /** Watches a resource; again is the same as once. Throws for what is not there or not the viewer's to read. */
  async add(viewer: Viewer, uri: string): Promise<void> {
    if (this.#stops.has(uri)) return;
    const resource = readUri(uri);
    if (!resource)
      throw new KhalaError("not_found", `There is no resource ${JSON.stringify(uri.slice(0, 200))}.`);
    if (this.#stops.size >= MAX_WATCHES)
      throw new KhalaError("limit_exceeded", `A client watches at most ${MAX_WATCHES} resources.`);
    // Its place is taken before anything is waited for.
    this.#stops.set(uri, () => {});
    try {
      const stop = await watch(this.#context, this.#options, viewer, resource, () => this.#changed(uri));
      // It may have been dropped since.
      if (this.#closed || !this.#stops.has(uri)) return stop();
      this.#stops.set(uri, stop);
    } catch (error) {
      this.#stops.delete(uri);
      throw error;
    }
  }

  delete(uri: string): void {
    this.#stops.get(uri)?.();
    this.#stops.delete(uri);
  }

  close(): void {
    this.#closed = true;
    for (const uri of [...this.#stops.keys()]) this.delete(uri);
  }
}
