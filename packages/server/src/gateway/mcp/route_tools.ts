import type { DescMessage } from "@bufbuild/protobuf";
import type { Route } from "../http/http.ts";
import { operationOf } from "../openapi/document.ts";
import { type JsonSchema, MessageSchemas } from "../openapi/json_schema.ts";
import { type Operation, PATH_PARAMETERS } from "../openapi/operation.ts";
import { type Api, errorText } from "./caller.ts";
import type { McpTool } from "./tool.ts";

/** Tools that are one route each, by their names. Their arguments and rights are those of the route. */
const TOOLS: Readonly<Record<string, string>> = {
  list_topic: "GET /sync/v1/list/:collection",
  get_document: "GET /sync/v1/doc/:doc_key",
  list_conversations: "GET /chat",
  get_conversation: "GET /chat/:conv_id",
  stop_run: "POST /chat/:conv_id/stop",
  publish_artifact: "POST /blackboard/v1/artifacts",
  list_artifacts: "GET /blackboard/v1/artifacts",
  get_artifact: "GET /blackboard/v1/artifacts/:id",
  list_agents: "GET /blackboard/v1/agents",
  list_approvals: "GET /approvals",
  // The routes of the kind "board", and those of the kind "chat".
  decide_approval: "POST /blackboard/v1/approvals/:id",
  decide_tool_call: "POST /chat/:conv_id/tools/:call_id",
  list_dead_letters: "GET /blackboard/v1/dead-letters/:agent",
  get_dead_letter: "GET /blackboard/v1/dead-letters/:agent/:id",
  replay_dead_letter: "POST /blackboard/v1/dead-letters/:agent/:id/replay",
};

/** Arguments whose name differs between routes: one word for a decision, whatever is decided. */
const RENAMED: Readonly<Record<string, string>> = { approve: "approved" };

/** The tools of the routes that this server has. */
export function routeTools(api: Api, routes: readonly Route[]): McpTool[] {
  return Object.entries(TOOLS).flatMap(([name, asked]) => {
    const route = routes.find(({ method, path }) => `${method} ${path}` === asked);
    return route?.action ? [routeTool(api, name, route)] : [];
  });
}

function routeTool(api: Api, name: string, route: Route): McpTool {
  const operation = operationOf(route)!;
  const inPath = [...route.path.matchAll(/:(\w+)/g)].map(([, each]) => each!);
  const inQuery = Object.keys(operation.query ?? {});
  const { summary, description } = operation;
  return {
    name,
    description: [`${summary}.`, description].filter(Boolean).join(" "),
    input: inputOf(operation, inPath),
    readOnly: route.method === "GET",
    needs: [route.action!],
    async call(caller, args) {
      const rest = { ...args };
      for (const [ours, shown] of renamedIn(operation)) {
        if (rest[shown] === undefined) continue;
        rest[ours] = rest[shown];
        delete rest[shown];
      }
      const take = (each: string): string | undefined => {
        const value = rest[each];
        delete rest[each];
        return value === undefined ? undefined : String(value);
      };
      const missing = inPath.find((each) => args[each] === undefined || args[each] === "");
      if (missing) return { failed: true, text: `${missing} is missing.` };
      const path = route.path.replace(/:(\w+)/g, (_, each) => encodeURIComponent(take(each)!));
      const query = new URLSearchParams();
      for (const each of inQuery) {
        const value = take(each);
        if (value !== undefined) query.set(each, value);
      }
      const [unknown] = operation.body ? [] : Object.keys(rest);
      if (unknown !== undefined) return { failed: true, text: `There is no argument ${unknown}.` };
      const answer = await api(caller, {
        method: route.method,
        path: query.size > 0 ? `${path}?${query}` : path,
        ...(operation.body && { body: rest }),
      });
      if (answer.status >= 300) return { failed: true, text: errorText(answer) };
      return { value: answer.body ?? { done: true } };
    },
  };
}

/** One object of what is in the path, in the query and in the body. */
function inputOf({ query = {}, body }: Operation, inPath: readonly string[]): JsonSchema {
  const schemas = new MessageSchemas("#/$defs/");
  const message = body && messageOf(body);
  const ofBody = message ? schemas.whole(message) : {};
  const { properties: named = {}, required = [] } = ofBody as {
    properties?: Readonly<Record<string, unknown>>;
    required?: readonly string[];
  };
  const properties = Object.fromEntries(
    Object.entries(named).map(([name, schema]) => [RENAMED[name] ?? name, schema]),
  );
  const parameters = [
    ...inPath.map((each) => [each, { type: "string", description: PATH_PARAMETERS[each] }] as const),
    ...Object.entries(query).map(
      ([each, { schema, description }]) => [each, { ...schema, description }] as const,
    ),
  ];
  const definitions = schemas.all();
  const needed = [...inPath, ...Object.keys(query).filter((each) => query[each]!.required), ...required];
  return {
    type: "object",
    properties: { ...Object.fromEntries(parameters), ...properties },
    ...(needed.length > 0 && { required: needed }),
    ...(Object.keys(definitions).length > 0 && { $defs: definitions }),
  };
}

/** The fields of the body that have another name as arguments. */
function renamedIn({ body }: Operation): (readonly [string, string])[] {
  const message = body && messageOf(body);
  return Object.entries(RENAMED).filter(([name]) => message?.fields.some((field) => field.name === name));
}

function messageOf(body: NonNullable<Operation["body"]>): DescMessage | undefined {
  if ("oneOf" in body) return body.oneOf[0];
  return "typeName" in body ? body : undefined;
}
