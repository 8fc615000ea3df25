import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

/** An app's own web server beside Khala: the page at `/`, and scripts by their paths. */
export interface WebApp extends AsyncDisposable {
  /** The origin for the server's KHALA_ORIGINS. */
  readonly origin: string;
}

/** Serves a page and its scripts on a free port. */
export async function startWebApp(page: string, scripts: Readonly<Record<string, string>>): Promise<WebApp> {
  const html = `<!doctype html><title>test</title><link rel="icon" href="data:,"><script type="module">${page}</script>`;
  const server = createServer(({ url = "/" }, response) => {
    const script = scripts[url];
    if (url !== "/" && script === undefined) return void response.writeHead(404).end();
    const type = script === undefined ? "text/html" : "text/javascript";
    response.writeHead(200, { "content-type": `${type}; charset=utf-8` }).end(script ?? html);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
