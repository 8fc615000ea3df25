import { ERRORS, KhalaError } from "@khala/contracts";
import { INVALID_PARAMS, ProtocolError, ResourceNotFoundError, Server } from "@modelcontextprotocol/server";
import { hasScopeFor } from "../../access/access.ts";
import type { Models } from "../../sync/model.ts";
import { type Api, errorText, type McpCaller } from "./caller.ts";
import { listResources, RESOURCE_TEMPLATES, readResource, readUri } from "./resources.ts";
import type { McpTool } from "./tool.ts";
import type { Watches } from "./watches.ts";

export interface McpServerOptions {
  readonly api: Api;
  readonly models: Models;
  readonly tools: readonly McpTool[];
  readonly version: string;
}

/** The parts of the client's session that a server needs. */
export interface McpClient {
  /** The sender of the request that is being served. */
  readonly caller: () => McpCaller;
  /** Undefined where a client subscribes in another way. */
  readonly watches?: Watches;
}

/** As JSON writes it: after an even number of backslashes, or none. */
const HALF_CHARACTER = /(?<!\\)(?:\\\\)*\\ud[89a-f]/;

const INSTRUCTIONS =
  `Khala keeps documents, conversations and a blackboard on which agents work. Publish artifacts with
publish_artifact and wait for what comes of them with follow_correlation; talk with send_message; look at list_approvals
and list_dead_letters for what needs somebody. Tools that begin with agent_ are agents of this app.`.replaceAll(
    "\n",
    " ",
  );

/** The tools and resources of this server for one client, as an SDK server that is not connected yet. */
export function mcpServer({ api, models, tools, version }: McpServerOptions, client: McpClient): Server {
  const server = new Server(
    { name: "khala", title: "Khala", version },
    { capabilities: { tools: {}, resources: { subscribe: true } }, instructions: INSTRUCTIONS },
  );
  const { caller, watches } = client;
  const allowed = () =>
    tools.filter(({ needs }) => needs.every((action) => hasScopeFor(caller().viewer, action)));

  server.setRequestHandler("tools/list", async () => ({
    tools: allowed().map(({ name, title, description, input, readOnly }) => ({
      name,
      ...(title && { title }),
      description,
      inputSchema: { ...input, type: "object" as const },
      annotations: { readOnlyHint: readOnly, ...(!readOnly && { destructiveHint: false }) },
    })),
  }));

  server.setRequestHandler("tools/call", async ({ params }, { mcpReq }) => {
    const tool = allowed().find(({ name }) => name === params.name);
    if (!tool)
      throw new ProtocolError(
        INVALID_PARAMS,
        `There is no tool ${params.name}, or the token does not allow it.`,
      );
    const args = params.arguments ?? {};
    if (HALF_CHARACTER.test(JSON.stringify(args)))
      throw new ProtocolError(INVALID_PARAMS, "An argument has half a character (a lone surrogate).");
    const { failed, text, value } = await tool.call(caller(), args, mcpReq.signal);
    if (failed) return { isError: true, content: [{ type: "text" as const, text: text ?? "It failed." }] };
    return {
      content: [{ type: "text" as const, text: JSON.stringify(value) }],
      structuredContent: value as Record<string, unknown>,
    };
  });

  server.setRequestHandler("resources/list", async () => ({
    resources: await listResources(api, models, caller()),
  }));
  server.setRequestHandler("resources/templates/list", async () => ({
    resourceTemplates: RESOURCE_TEMPLATES,
  }));
  server.setRequestHandler("resources/read", async ({ params: { uri } }) => {
    const resource = readUri(uri);
    if (!resource) throw new ResourceNotFoundError(uri);
    const answer = await readResource(api, caller(), resource);
    if (answer.status === 404) throw new ResourceNotFoundError(uri);
    if (answer.status !== 200) throw new ProtocolError(INVALID_PARAMS, errorText(answer));
    return { contents: [{ uri, mimeType: "application/json", text: JSON.stringify(answer.body) }] };
  });

  if (watches) {
    server.setRequestHandler("resources/subscribe", async ({ params: { uri } }) => {
      await watches.add(caller().viewer, uri).catch((error) => {
        throw protocolError(error, uri);
      });
      return {};
    });
    server.setRequestHandler("resources/unsubscribe", async ({ params: { uri } }) => {
      watches.delete(uri);
      return {};
    });
  }
  return server;
}

/** A refusal in MCP's form; anything else is unchanged. */
export function protocolError(error: unknown, uri: string): unknown {
  if (!(error instanceof KhalaError)) return error;
  if (ERRORS[error.code].status === 404) return new ResourceNotFoundError(uri);
  return new ProtocolError(INVALID_PARAMS, `${error.message} (${error.code})`);
}
