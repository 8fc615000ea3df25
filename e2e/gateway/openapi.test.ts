import { agent } from "@khala/server";
import { type TestDatabase, testDatabase } from "@khala/test-support/postgres/test_database";
import { startServer, type TestServer } from "@khala/test-support/servers/servers";
import { Validator } from "@seriousme/openapi-schema-validator";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { checkResponse } from "../../packages/test-support/src/servers/openapi_responses.ts";

interface OpenApi {
  readonly openapi: string;
  readonly paths: Record<string, Record<string, Operation>>;
  readonly components: { readonly schemas: Record<string, unknown> };
}

interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly description?: string;
  readonly security?: readonly object[];
  readonly parameters: readonly {
    readonly name: string;
    readonly in: string;
    readonly description: string;
  }[];
  readonly requestBody?: {
    readonly content: Record<string, { readonly schema: { readonly $ref?: string } }>;
  };
  readonly responses: Record<string, { readonly content?: Record<string, { readonly schema: unknown }> }>;
}

let database: TestDatabase;
let server: TestServer;
let document: OpenApi;

beforeAll(async () => {
  database = await testDatabase();
  server = await startServer(database.url, { agents: [agent("editor", { consumes: "Draft" })] });
  document = (await (await server.request("/openapi.json")).json()) as OpenApi;
});
afterAll(async () => {
  await server[Symbol.asyncDispose]();
  await database[Symbol.asyncDispose]();
});

function operations(): Operation[] {
  return Object.values(document.paths).flatMap((methods) => Object.values(methods));
}

describe("/openapi.json", () => {
  test("is a valid OpenAPI 3.1 document", async () => {
    const { valid, errors } = await new Validator().validate({ ...structuredClone(document) });
    expect(errors).toBeUndefined();
    expect(valid).toBe(true);
    expect(document.openapi).toMatch(/^3\.1\./);
  });

  test("has no reference to a missing schema", () => {
    const refs = [...JSON.stringify(document).matchAll(/"\$ref":"#\/components\/schemas\/([^"]+)"/g)];
    const missing = refs.map(([, name]) => name!).filter((name) => !(name in document.components.schemas));
    expect(refs.length).toBeGreaterThan(50);
    expect(missing).toEqual([]);
  });

  test("has every route that needs a scope, with the error shape and its scopes", () => {
    for (const { method, path, action } of server.khala.gateway.routes) {
      if (!action) continue;
      const operation =
        document.paths[path.replace(/:(\w+)/g, "{$1}").replace("*", "{path}")]?.[method.toLowerCase()];
      expect(operation, `${method} ${path}: describe it in a table of gateway/openapi`).toBeDefined();
      expect(operation!.security, `${method} ${path}`).toHaveLength(1);
      expect(operation!.description).toMatch(/Needs (the (scope|issuer key)|a token)/);
      if (method !== "HEAD")
        expect(operation!.responses[401]?.content?.["application/json"]?.schema).toEqual({
          $ref: "#/components/schemas/ErrorResponse",
        });
    }
  });

  test("gives every operation an id, a summary, and a description of each parameter", () => {
    const ids = operations().map(({ operationId }) => operationId);
    expect(new Set(ids).size).toBe(ids.length);
    for (const { summary, parameters, operationId } of operations()) {
      expect(summary, operationId).not.toBe("");
      for (const each of parameters) expect(each.description, `${operationId} ${each.name}`).not.toBe("");
    }
  });

  test("takes schemas and their descriptions from the protos", () => {
    const chat = document.paths["/chat"]!.post!;
    expect(chat.requestBody!.content["application/json"]!.schema.$ref).toBe(
      "#/components/schemas/ChatRequest",
    );
    expect(document.components.schemas.Artifact).toMatchObject({
      type: "object",
      properties: { version: { type: "integer", description: expect.stringContaining("1 at first") } },
    });
  });

  test("describes streams of the app by their own paths", () => {
    expect(Object.keys(document.paths["/runtime/v1/runs/{id}/events"]!)).toEqual(["post", "get"]);
  });
});

describe("the check of responses", () => {
  const routes = () => server.khala.gateway.routes;
  const get = { method: "GET", path: "/chat" };

  test("accepts described responses", async () => {
    await checkResponse(routes(), get, Response.json({ conversations: [] }));
  });

  test.each([
    ["a status that is not described", Response.json({}, { status: 418 })],
    ["a property that is not described", Response.json({ conversations: [], colour: "red" })],
    ["a value of another type", Response.json({ conversations: "none" })],
    ["an error without a code", Response.json({ error: { message: "No." } }, { status: 404 })],
  ])("refuses %s", async (_, response) => {
    await expect(checkResponse(routes(), get, response)).rejects.toThrow("is not what /openapi.json says");
  });
});
