import { testContext } from "@khala/test-support/kit/context";
import { noAudit } from "@khala/test-support/kit/viewer";
import { expect, test } from "vitest";
import { gatewayMetrics } from "../metrics.ts";
import { openHttp } from "./http.ts";

async function post(payload: string) {
  const context = await testContext();
  const { app } = openHttp(context, {
    verifier: { verify: () => Promise.reject(new Error("nobody is asked here")) },
    metrics: gatewayMetrics(context.telemetry.meter),
    maxBodyBytes: 1 << 20,
    readsPerOrg: 1,
    origins: [],
    audit: noAudit,
  });
  app.post("/", async ({ body }) => body);
  const headers = { "content-type": "application/json" };
  const response = await app.inject({ method: "POST", url: "/", headers, payload });
  await app.close();
  return { status: response.statusCode, error: response.json().error };
}

test.each([
  ["{", "body", /^The body is not valid JSON: .*position/],
  ["", "body", "The body is not valid JSON: it is empty."],
  ['{"a":{"__proto__":{"b":1}}}', "__proto__", /__proto__/],
  ['{"constructor":{"prototype":{}}}', "__proto__", /prototype in constructor/],
  ['{"a":9007199254740993}', "a", /9007199254740991/],
])("the error of the body %j names what is wrong", async (body, field, message) => {
  expect(await post(body)).toMatchObject({
    status: 400,
    error: { code: "invalid_request", field, message: expect.stringMatching(message) },
  });
});
