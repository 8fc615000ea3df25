import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import type { Route } from "../../../server/src/gateway/http/http.ts";
import { type OpenApiDocument, openApiDocument } from "../../../server/src/gateway/openapi/document.ts";

/** The responses of one operation: by status, and by media type. */
type Responses = Readonly<Record<string, { readonly content?: Readonly<Record<string, unknown>> }>>;

interface Checker {
  readonly document: OpenApiDocument;
  readonly paths: readonly { readonly path: string; readonly pattern: RegExp }[];
  readonly schema: (path: string, method: string, status: string) => ValidateFunction | undefined;
}

/** Servers with the same routes share one. */
const checkers = new Map<string, Checker>();

/** Throws unless the server's OpenAPI document describes the response. Skips paths that are not in it. */
export async function checkResponse(
  routes: readonly Route[],
  request: { readonly method: string; readonly path: string },
  response: Response,
): Promise<void> {
  const { document, paths, schema } = checkerOf(routes);
  const [asked] = request.path.split("?");
  const found = paths.find(({ pattern }) => pattern.test(asked!));
  const method = request.method.toLowerCase();
  const operation = found && document.paths[found.path]![method];
  if (!operation) return;
  const status = String(response.status);
  const described = (operation.responses as Responses)[status];
  const what = `${request.method} ${request.path} → ${status}`;
  if (!described) throw undocumented(what, "the status is not described");
  const type = response.headers.get("content-type")?.split(";")[0];
  if (type !== "application/json" || method === "head") return;
  if (!described.content?.["application/json"]) {
    if (described.content?.["*/*"]) return;
    throw undocumented(what, "no JSON is described");
  }
  const validate = schema(found.path, method, status)!;
  const body: unknown = await response.clone().json();
  if (!validate(body))
    throw undocumented(what, `${JSON.stringify(validate.errors)} in ${JSON.stringify(body).slice(0, 1_000)}`);
}

function undocumented(what: string, why: string): Error {
  return new Error(`${what} is not what /openapi.json says (see gateway/openapi): ${why}`);
}

function checkerOf(routes: readonly Route[]): Checker {
  const key = routes.map(({ method, path }) => `${method} ${path}`).join("\n");
  const known = checkers.get(key);
  if (known) return known;
  const document = openApiDocument(routes, "0");
  const ajv = new Ajv2020({ strict: false, allErrors: true, validateFormats: false });
  ajv.addSchema({ $id: "openapi", ...(closed(document) as object) });
  const paths = Object.keys(document.paths)
    .map((path) => ({ path, pattern: patternOf(path) }))
    // Literal segments go before parameters.
    .sort((a, b) => parameters(a.path) - parameters(b.path));
  const checker: Checker = {
    document,
    paths,
    schema: (path, method, status) => {
      const steps = ["paths", path, method, "responses", status, "content", "application/json", "schema"];
      const pointer = steps.map((step) => step.replaceAll("~", "~0").replaceAll("/", "~1"));
      return ajv.getSchema(`openapi#/${pointer.map(encodeURIComponent).join("/")}`);
    },
  };
  checkers.set(key, checker);
  return checker;
}

function patternOf(path: string): RegExp {
  const source = path.replace(/\{(\w+)\}/g, (_, name) => (name === "path" ? ".+" : "[^/]+"));
  return new RegExp(`^${source.replaceAll(".json", "\\.json")}$`);
}

function parameters(path: string): number {
  return path.split("{").length;
}

/** The same with only described properties: a client may ignore others, we may not send any. */
function closed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(closed);
  if (typeof value !== "object" || value === null) return value;
  const copy = Object.fromEntries(Object.entries(value).map(([key, each]) => [key, closed(each)]));
  const isOpen = copy.type !== "object" || !copy.properties || "additionalProperties" in copy;
  return isOpen ? copy : { ...copy, additionalProperties: false };
}
