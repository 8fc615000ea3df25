import type { Random } from "../../../server/src/kit/ids.ts";
import type { HeldDocument, Listed } from "./witness_view.ts";
import { type Cursor, cursorOf } from "./witness_wire.ts";

export interface WitnessHttpOptions {
  /** The gateways; each request goes to one of them. */
  readonly urls: () => readonly string[];
  /** A token for the witness, fresh for every connection and request. */
  readonly token: () => Promise<string>;
  readonly random: Random;
}

/** A witness's requests over HTTP. */
export class WitnessHttp {
  readonly #options: WitnessHttpOptions;

  constructor(options: WitnessHttpOptions) {
    this.#options = options;
  }

  anyUrl(): string {
    const urls = this.#options.urls();
    return urls[Math.floor(this.#options.random() * urls.length)]!;
  }

  /** All pages of a topic's list. */
  async list(topic: string): Promise<Listed> {
    const documents = new Map<string, HeldDocument>();
    const url = this.anyUrl();
    let cursor: Cursor | undefined;
    let after = "";
    do {
      const page = (await this.#get(`${url}/sync/v1/list/${topic}?limit=1000${after}`)) as ListJson;
      for (const document of page.documents) documents.set(document.doc_key, heldOf(document));
      // The first page's position: changes made while the others are read come again.
      cursor ??= cursorOf(page.cursor);
      after = page.next === null ? "" : `&after=${page.next}`;
    } while (after);
    return { documents, cursor };
  }

  /** One document; undefined when it does not exist or the witness may not see it. */
  async document(docKey: string): Promise<HeldDocument | undefined> {
    const url = `${this.anyUrl()}/sync/v1/doc/${encodeURIComponent(docKey)}`;
    const document = (await this.#get(url)) as DocumentJson | undefined;
    return document && heldOf(document);
  }

  async #get(url: string): Promise<unknown> {
    const response = await fetch(url, {
      headers: { authorization: `Bearer ${await this.#options.token()}` },
      signal: AbortSignal.timeout(5_000),
    });
    if (response.status === 404) return undefined;
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    return response.json();
  }
}

interface DocumentJson {
  readonly doc_key: string;
  readonly doc_version: string;
  readonly payload_hash: string;
}

interface ListJson {
  readonly documents: readonly DocumentJson[];
  readonly cursor: { readonly epoch: string; readonly watermark: string };
  readonly next: string | null;
}

function heldOf({ doc_version, payload_hash }: DocumentJson): HeldDocument {
  return { version: BigInt(doc_version), hash: payload_hash };
}
