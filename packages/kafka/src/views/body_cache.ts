import { Oldest } from "../flow/oldest.ts";

interface Body {
  readonly version: number;
  /** Its JSON, as text or in UTF-8. */
  readonly json: string | Buffer;
}

/** What an entry costs besides its JSON. */
const OVERHEAD_BYTES = 200;

/** The bodies of artifacts that were used last, as JSON, within a number of bytes. */
export class BodyCache {
  readonly #bodies = new Map<string, Body>();
  readonly #oldest = new Oldest(this.#bodies);
  readonly #maxBytes: number;
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** The newest that is here, which is from now on the last to go. */
  get(id: string): Body | undefined {
    const body = this.#bodies.get(id);
    if (!body) return undefined;
    this.#bodies.delete(id);
    this.#bodies.set(id, body);
    return body;
  }

  /** Keeps a body, unless a newer version of it is here. */
  put(id: string, version: number, json: string | Buffer): void {
    const known = this.#bodies.get(id);
    if (known && known.version > version) return;
    this.delete(id);
    const bytes = cost(json);
    if (bytes > this.#maxBytes) return;
    this.#bodies.set(id, { version, json });
    this.#bytes += bytes;
    while (this.#bytes > this.#maxBytes) this.delete(this.#oldest.next()!);
  }

  delete(id: string): void {
    const body = this.#bodies.get(id);
    if (!body) return;
    this.#bytes -= cost(body.json);
    this.#bodies.delete(id);
  }
}

// As the engine keeps text: one byte for each character, or two if any is not Latin; the higher is safe.
function cost(json: string | Buffer): number {
  return (typeof json === "string" ? json.length * 2 : json.length) + OVERHEAD_BYTES;
}
