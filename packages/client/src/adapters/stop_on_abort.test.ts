import { expect, test } from "vitest";
import { stopOnAbort } from "./stop_on_abort.ts";

test("a request that follows an abort waits until the server knows of the stop", async () => {
  const sent: string[] = [];
  const stopped = Promise.withResolvers<void>();
  const fetch = stopOnAbort(async (input) => {
    const { pathname } = new URL(String(input));
    sent.push(pathname);
    if (pathname === "/stop") await stopped.promise;
    const response = new Response("", { headers: { "khala-stop": "/stop" } });
    Object.defineProperty(response, "url", { value: String(input) });
    return response;
  });
  const leaving = new AbortController();
  await fetch("http://khala/one", { signal: leaving.signal });
  leaving.abort();
  const next = fetch("http://khala/two", { signal: new AbortController().signal });
  await new Promise(setImmediate);
  expect(sent).toEqual(["/one", "/stop"]);
  stopped.resolve();
  await next;
  expect(sent).toEqual(["/one", "/stop", "/two"]);
});
