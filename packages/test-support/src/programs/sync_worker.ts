import { createClient, type KhalaClient } from "@khala/client";
import { indexedDb } from "@khala/client/storage";

const TOPIC = "runtime.run_summaries";

/** The first message of a page: the server's address and the page's name. */
interface Start {
  readonly url: string;
  readonly token: string;
}

/** A page connected to the worker, or in a dedicated worker the worker itself. */
interface Port {
  postMessage(message: unknown): void;
  onmessage: ((event: { readonly data: Start }) => void) | null;
}

/** The worker itself, dedicated or shared. */
declare const self: Port & {
  onconnect?: ((event: { readonly ports: readonly [Port] }) => void) | null;
};

let client: KhalaClient | undefined;
const pages: Port[] = [];

/** The client's documents, as a page would show them. */
function picture(khala: KhalaClient) {
  const { items, phase } = khala.sync.list(TOPIC);
  const documents = Object.fromEntries(items.map(({ key, version }) => [key, version]));
  return { role: khala.connection.status().role, phase, documents };
}

function start({ url, token }: Start): KhalaClient {
  const khala = createClient({ url, token, storage: indexedDb() });
  const tell = () => {
    for (const page of pages) page.postMessage(picture(khala));
  };
  khala.sync.subscribe(TOPIC, tell);
  khala.connection.subscribe(tell);
  return khala;
}

function serve(page: Port): void {
  page.onmessage = ({ data }) => {
    pages.push(page);
    client ??= start(data);
    page.postMessage(picture(client));
  };
}

if ("onconnect" in self) self.onconnect = ({ ports: [page] }) => serve(page);
else serve(self);
