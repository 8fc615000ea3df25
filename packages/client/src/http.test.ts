import { expect, test } from "vitest";
import { FakeEnvironment, jwt } from "./connection/test_support.ts";
import { Tokens } from "./connection/tokens.ts";
import { fetchHttp } from "./http.ts";

interface Call {
  readonly url: string;
  readonly init: RequestInit;
}

/** HTTP whose server is a function. */
function served(answer: (call: Call, calls: number) => Response | Promise<Response>, origin?: string) {
  const calls: Call[] = [];
  const place = new FakeEnvironment();
  const environment = Object.assign(place, {
    ...(origin !== undefined && { origin }),
    fetch: async (url: string, init: RequestInit) => {
      calls.push({ url, init });
      return answer({ url, init }, calls.length);
    },
  });
  let minted = 0;
  const tokens = new Tokens(async () => `token-${++minted}`, environment);
  return { calls, place, tokens, http: fetchHttp({ url: "http://khala.test/", environment, tokens }) };
}

const refused = (status: number, code: string) =>
  Response.json({ error: { code, message: "No.", retry_after_ms: 700 } }, { status });
const bearer = ({ init }: Call) => new Headers(init.headers).get("authorization");

test("sends the token, the defined query parameters, and a JSON body", async () => {
  const { calls, http } = served(() => Response.json({ a: 1 }, { status: 201 }));
  const answer = await http.request("POST", "/x", { query: { limit: 2, after: undefined }, body: { b: 2 } });
  expect(answer).toMatchObject({ status: 201, body: { a: 1 } });
  expect(calls[0]).toMatchObject({
    url: "http://khala.test/x?limit=2",
    init: { method: "POST", body: '{"b":2}' },
  });
  expect(bearer(calls[0]!)).toBe("Bearer token-1");
});

test("returns undefined for an empty body, and accepts 304", async () => {
  const { http } = served(() => new Response(null, { status: 304 }));
  expect(await http.request("GET", "/x")).toMatchObject({ status: 304, body: undefined });
});

test("replaces a refused token once, and then reports the refusal", async () => {
  const { calls, http } = served((_, n) => (n === 1 ? refused(401, "token_expired") : Response.json({})));
  await http.request("GET", "/x");
  expect(calls.map(bearer)).toEqual(["Bearer token-1", "Bearer token-2"]);
  const hopeless = served(() => refused(401, "token_revoked"));
  await expect(hopeless.http.request("GET", "/x")).rejects.toMatchObject({ code: "token_revoked" });
  expect(hopeless.calls).toHaveLength(2);
});

test("names the path that a development server answers with a page of its own", async () => {
  const page = () =>
    new Response("<!doctype html>", { headers: { "content-type": "text/html; charset=utf-8" } });
  const { http } = served(page);
  await expect(http.request("GET", "/approvals")).rejects.toMatchObject({
    code: "invalid_request",
    message: /^GET \/approvals was answered with HTTP 200 and text\/html, not by Khala\./,
  });
});

test("throws the server's error with its details", async () => {
  const { http } = served(() => refused(503, "overloaded"));
  await expect(http.request("GET", "/x")).rejects.toMatchObject({
    name: "KhalaError",
    code: "overloaded",
    details: { retry_after_ms: 700 },
  });
});

test("reports a response of a proxy, an unreachable server and a timeout by distinct messages", async () => {
  const proxy = served(() => new Response("<html>", { status: 502 }));
  await expect(proxy.http.request("GET", "/x")).rejects.toMatchObject({
    code: "unavailable",
    message: /502/,
  });
  const away = served(() => Promise.reject(new TypeError("fetch failed")));
  await expect(away.http.request("GET", "/x")).rejects.toMatchObject({ message: /cannot be reached/ });
  const slow = served(({ init }) => {
    init.signal?.throwIfAborted();
    return new Promise((_, reject) =>
      init.signal!.addEventListener("abort", () => reject(new Error("aborted"))),
    );
  });
  const late = expect(slow.http.request("GET", "/x")).rejects.toMatchObject({ message: /within 15 s/ });
  await slow.place.pass(15_000);
  await late;
  expect(slow.place.timers).toBe(0);
  const given = AbortSignal.abort();
  await expect(slow.http.request("GET", "/x", { signal: given })).rejects.toMatchObject({
    message: /given up/,
  });
});

test("learns the server's time from its responses", async () => {
  const { place, tokens, http } = served(() =>
    Response.json({}, { headers: { date: new Date(10_000_000).toUTCString() } }),
  );
  await http.request("GET", "/x");
  expect(tokens.serverNow() - place.now()).toBe(10_000_500 - place.now());
});

test("the diagnosis names the problem of the token, and is undefined for a valid one", async () => {
  const { calls, http } = served((call) =>
    bearer(call) === "Bearer good" ? refused(404, "not_found") : refused(401, "invalid_token"),
  );
  expect(await http.diagnose("good")).toBeUndefined();
  expect(await http.diagnose(jwt({}))).toMatchObject({ code: "invalid_token" });
  expect(calls).toHaveLength(2);
});

test("names KHALA_ORIGINS to a page of another origin when the server cannot be reached", async () => {
  const fail = () => {
    throw new TypeError("Failed to fetch");
  };
  const messageFor = (origin?: string) =>
    served(fail, origin)
      .http.request("GET", "/x")
      .catch(({ message }: Error) => message);
  expect(await messageFor("http://localhost:5173")).toMatch(/http:\/\/localhost:5173.*KHALA_ORIGINS/);
  for (const origin of [undefined, "http://khala.test"])
    expect(await messageFor(origin)).toBe("The server at http://khala.test cannot be reached.");
});
