import { randomUUID } from "node:crypto";
import { SCOPES } from "@khala/contracts";
import { RUNS } from "@khala/test-support/servers/servers";
import { beforeAll, describe, expect, test } from "vitest";
import { make, type Role, roles, server, tokens, withServer, worthlessTokens } from "./world.ts";

withServer();

type Result = Readonly<Record<string, unknown>>;
interface Answer {
  readonly result?: Result;
  readonly error?: { readonly message: string };
}

/** A client's session. */
class Session {
  readonly #token: string;
  #id = "";

  constructor(token: string) {
    this.#token = token;
  }

  async post(method: string, params: object): Promise<Response> {
    return server.request("/mcp", this.#token, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        ...(this.#id && { "mcp-session-id": this.#id }),
      },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
    });
  }

  async ask(method: string, params: object = {}): Promise<Answer> {
    if (!this.#id) {
      const clientInfo = { name: "test", version: "1" };
      const opening = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo };
      this.#id = (await this.post("initialize", opening)).headers.get("mcp-session-id")!;
    }
    return (await (await this.post(method, params)).json()) as Answer;
  }

  async list<T>(method: string, of: string): Promise<readonly T[]> {
    return (await this.ask(method)).result![of] as readonly T[];
  }
}

const sessions = {} as Record<Role, Session>;
beforeAll(() => {
  for (const role of roles) sessions[role] = new Session(tokens[role]);
});

/** The text of a refusal; undefined for what was allowed. */
function refusal({ result, error }: Answer): string | undefined {
  if (error) return error.message;
  return result!.isError ? (result!.content as { text: string }[])[0]!.text : undefined;
}

/** `ok`, `-` for a tool that is not there, or the code of the error. */
function outcomeOf(answer: Answer): string {
  const text = refusal(answer);
  if (text === undefined) return "ok";
  if (/There is no tool/.test(text)) return "-";
  return /\((\w+)[,)]/.exec(text)?.[1] ?? (/not found/.test(text) ? "not_found" : text);
}

interface Row {
  /** Makes what the call is about, as its owner; resolves with its name. Without it, the call is about nothing of anybody. */
  readonly make?: () => Promise<string>;
  /** A name that nobody has given; none where a name that is not there is created. */
  readonly unknown?: string;
  readonly args?: (name: string) => object;
  readonly cells: string;
}

/** For each tool: what the roles get. One that the token's scopes do not allow is not there. */
//                                      owner other foreign bare operator service platform member viewer
const TOOLS: Readonly<Record<string, Row>> = {
  list_topic: {
    args: () => ({ collection: RUNS }),
    cells: "ok ok ok forbidden_topic forbidden_topic forbidden_topic forbidden_topic ok ok",
  },
  get_document: {
    make: make.document,
    unknown: "run:nothing",
    args: (doc_key) => ({ doc_key }),
    cells: `ok${" not_found".repeat(8)}`,
  },
  list_conversations: { cells: "ok ok ok - - ok - ok ok" },
  get_conversation: {
    make: make.conversation,
    unknown: "nothing",
    args: (conv_id) => ({ conv_id }),
    cells: "ok not_found not_found - - ok - ok ok",
  },
  send_message: {
    make: make.conversation,
    args: (conv_id) => ({ conv_id, message: "Again", policy: "queue", wait_ms: 0 }),
    cells: "ok not_found ok - - ok - ok missing_role",
  },
  stop_run: {
    make: make.conversation,
    unknown: "nothing",
    args: (conv_id) => ({ conv_id }),
    cells: "ok not_found not_found - - ok - ok missing_role",
  },
  publish_artifact: {
    make: make.privateArtifact,
    args: (id) => ({ id, version: 2, type: "Note", payload: {} }),
    cells: "ok not_found ok - - - - not_found not_found",
  },
  list_artifacts: { cells: "ok ok ok - - - - ok ok" },
  get_artifact: {
    make: make.privateArtifact,
    unknown: randomUUID(),
    args: (id) => ({ id }),
    cells: "ok not_found not_found - - - - not_found not_found",
  },
  follow_correlation: {
    make: make.correlation,
    unknown: "nothing",
    args: (correlation_id) => ({ correlation_id, wait_ms: 0 }),
    cells: "ok ok not_found - - - - ok ok",
  },
  agent_writer: { args: () => ({ payload: {} }), cells: "ok ok ok - - - - ok ok" },
  list_agents: { cells: "ok ok ok - - - - ok ok" },
  list_approvals: { cells: "ok ok ok - - ok - ok ok" },
  decide_approval: {
    make: make.approval,
    unknown: randomUUID(),
    args: (id) => ({ id, approved: true }),
    cells: "ok ok not_found - - - - ok ok",
  },
  decide_tool_call: {
    make: make.toolCall,
    unknown: "nothing",
    args: (conv_id) => ({ conv_id, call_id: "pay", approved: true }),
    cells: "ok not_found not_found - - ok - ok missing_role",
  },
  list_dead_letters: { args: () => ({ agent: "failing" }), cells: "ok ok ok - - - - ok ok" },
  get_dead_letter: {
    make: make.deadLetter,
    unknown: randomUUID(),
    args: (id) => ({ agent: "failing", id }),
    cells: "ok ok not_found - - - - ok ok",
  },
  replay_dead_letter: {
    make: make.deadLetter,
    unknown: randomUUID(),
    args: (id) => ({ agent: "failing", id }),
    cells: "ok ok not_found - - - - ok ok",
  },
};

/** For each kind of resource: what the roles get when they read it, and when they subscribe to it. */
const RESOURCES: Readonly<
  Record<string, Pick<Row, "make"> & { readonly read: string; readonly watch: string }>
> = {
  "khala://topics/{topic}": {
    read: "ok ok ok forbidden_topic forbidden_topic forbidden_topic forbidden_topic ok ok",
    watch: "ok ok ok forbidden_topic forbidden_topic forbidden_topic forbidden_topic ok ok",
  },
  "khala://documents/{doc_key}": {
    make: make.document,
    read: `ok${" not_found".repeat(8)}`,
    // Readers of the topic may wait for a document of any key, and hear of what is theirs.
    watch: "ok ok ok forbidden_topic forbidden_topic forbidden_topic forbidden_topic ok ok",
  },
  "khala://conversations/{conv_id}": {
    make: make.conversation,
    read: "ok not_found not_found missing_scope missing_scope ok missing_scope ok ok",
    watch: "ok not_found not_found missing_scope missing_scope ok missing_scope ok ok",
  },
};
const UNKNOWN: Readonly<Record<string, string>> = { doc_key: "run:nothing", conv_id: "nothing" };

test("every tool and every kind of resource has a row", async () => {
  const scopes = [RUNS, ...Object.values(SCOPES)];
  const all = new Session(await server.token({ org_id: "acme", sub: "all", scopes }));
  const tools = await all.list<{ name: string }>("tools/list", "tools");
  expect(Object.keys(TOOLS).sort()).toEqual(tools.map(({ name }) => name).sort());
  const templates = await all.list<{ uriTemplate: string }>("resources/templates/list", "resourceTemplates");
  expect(Object.keys(RESOURCES)).toEqual(templates.map(({ uriTemplate }) => uriTemplate));
});

test.each(roles.map((role, i) => [role, i] as const))("%s is told of what it may use", async (role, i) => {
  const tools = await sessions[role].list<{ name: string }>("tools/list", "tools");
  const allowed = Object.entries(TOOLS).filter(([, { cells }]) => cells.split(" ")[i] !== "-");
  expect(tools.map(({ name }) => name).sort()).toEqual(allowed.map(([name]) => name).sort());

  const conv_id = await make.conversation();
  const uris = (await sessions[role].list<{ uri: string }>("resources/list", "resources")).map(
    ({ uri }) => uri,
  );
  const isAllowed = (kind: string) => RESOURCES[kind]!.read.split(" ")[i] === "ok";
  expect(uris.includes(`khala://topics/${RUNS}`)).toBe(isAllowed("khala://topics/{topic}"));
  // A service reads every conversation of its org, and lists its own.
  const isListed = isAllowed("khala://conversations/{conv_id}") && role !== "service";
  expect(uris.includes(`khala://conversations/${conv_id}`)).toBe(isListed);
});

/** Calls, and compares the answer with that for a name that nobody has given where it is not_found. */
async function check(
  expected: string,
  { made, unknown }: { made: string; unknown: string | undefined },
  call: (name: string) => Promise<Answer>,
): Promise<void> {
  const answer = await call(made);
  expect(outcomeOf(answer), JSON.stringify(answer)).toBe(expected);
  if (expected !== "not_found" || unknown === undefined) return;
  const shape = (each: Answer, about: string) => JSON.stringify(each).replaceAll(about, "…");
  expect(shape(answer, made)).toBe(shape(await call(unknown), unknown));
}

describe.each(Object.keys(TOOLS))("%s", (name) => {
  const row = TOOLS[name]!;
  const cells = row.cells.split(" ");

  test.each(roles.map((role, i) => [role, cells[i]!] as const))("%s: %s", async (role, expected) => {
    const made = (await row.make?.()) ?? "";
    await check(expected, { made, unknown: row.unknown }, (about) =>
      sessions[role].ask("tools/call", { name, arguments: row.args?.(about) ?? {} }),
    );
  });
});

describe.each(Object.keys(RESOURCES))("%s", (template) => {
  const row = RESOURCES[template]!;
  const uriOf = (name: string) => template.replace(/\{\w+\}/, encodeURIComponent(name));
  const unknown = UNKNOWN[/\{(\w+)\}/.exec(template)![1]!];

  test.each(roles.map((role, i) => [role, row.read.split(" ")[i]!, row.watch.split(" ")[i]!] as const))(
    "%s: read %s, subscribe %s",
    async (role, read, watch) => {
      const made = (await row.make?.()) ?? RUNS;
      const names = { made: uriOf(made), unknown: unknown && uriOf(unknown) };
      const ask = (method: string) => (uri: string) => sessions[role].ask(method, { uri });
      await check(read, names, ask("resources/read"));
      await check(watch, names, ask("resources/subscribe"));
    },
  );
});

test("no token, an expired one and a revoked one get 401 for every tool and every resource", async () => {
  const requests = [
    ...Object.entries(TOOLS).map(([name, { args }]) => [
      "tools/call",
      { name, arguments: args?.("nothing") ?? {} },
    ]),
    ...Object.keys(RESOURCES).flatMap((uri) => [
      ["resources/read", { uri }],
      ["resources/subscribe", { uri }],
    ]),
  ] as [string, object][];
  for (const token of await worthlessTokens())
    for (const [method, params] of requests)
      expect((await new Session(token).post(method, params)).status, method).toBe(401);
});
