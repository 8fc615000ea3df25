import { expect, test, vi } from "vitest";
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

test("a request that is aborted while it waits for a stop is not sent", async () => {
  const sent: string[] = [];
  const answers = Promise.withResolvers<Response>();
  const fetch = stopOnAbort(async (input) => {
    sent.push(new URL(String(input)).pathname);
    return answers.promise;
  });
  const [first, second] = [new AbortController(), new AbortController()];
  const one = fetch("http://khala/one", { signal: first.signal });
  await new Promise(setImmediate);
  first.abort();
  const two = fetch("http://khala/two", { signal: second.signal });
  second.abort();
  answers.resolve(new Response(""));
  await Promise.all([expect(one).rejects.toThrow(), expect(two).rejects.toThrow()]);
  await new Promise(setImmediate);
  expect(sent).toEqual(["/one"]);
});

test("a request waits five seconds at most for the stop of one that is never answered", async () => {
  vi.useFakeTimers();
  try {
    const sent: string[] = [];
    const fetch = stopOnAbort(async (input) => {
      const { pathname } = new URL(String(input));
      sent.push(pathname);
      return pathname === "/one" ? new Promise<Response>(() => {}) : new Response("");
    });
    const leaving = new AbortController();
    const one = fetch("http://khala/one", { signal: leaving.signal });
    await vi.advanceTimersByTimeAsync(0);
    leaving.abort();
    await expect(one).rejects.toThrow();
    const two = fetch("http://khala/two", { signal: new AbortController().signal });
    await vi.advanceTimersByTimeAsync(5_000);
    expect((await two).status).toBe(200);
    expect(sent).toEqual(["/one", "/two"]);
  } finally {
    vi.useRealTimers();
  }
});
