import { KhalaError } from "@khala/contracts";
import type { ArtifactListJson, CorrelationStateJson } from "@khala/contracts/blackboard/v1";
import type { ChatResponseJson, ConversationStateJson, RunJson } from "@khala/contracts/conversation/v1";
import type { Agent } from "../../blackboard/model/agent.ts";
import { producer } from "../../blackboard/model/names.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { inputJsonSchema, type Schemas } from "../../kit/standard_schema.ts";
import type { JsonSchema } from "../openapi/json_schema.ts";
import { type Api, type ApiRequest, errorText, type McpCaller } from "./caller.ts";
import type { McpTool, ToolAnswer } from "./tool.ts";

/** How long a tool waits by default; clients time out after a minute. */
const WAIT_MS = 30_000;
const MAX_WAIT_MS = 50_000;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;
const MAX_ARTIFACTS = 100;

const WAIT = {
  type: "integer",
  minimum: 0,
  maximum: MAX_WAIT_MS,
  default: WAIT_MS,
  description: "How many milliseconds to wait for the end. The work continues after the wait.",
};

interface WaitingOptions {
  readonly api: Api;
  readonly context: Context;
  readonly agents: readonly Agent[];
  readonly schemas: Schemas;
}

/** Tools that wait for an outcome, each as long as its caller likes: a message, a correlation, and agents of the app. */
export function waitingTools(options: WaitingOptions): McpTool[] {
  const { agents } = options;
  const exposed = agents.filter(({ options: { expose } }) => expose);
  return [
    sendMessage(options),
    ...(agents.length > 0 ? [followCorrelation(options)] : []),
    ...exposed.map((each) => agentTool(options, each)),
  ];
}

function sendMessage(options: WaitingOptions): McpTool {
  return {
    name: "send_message",
    description:
      "Sends a message to a conversation and waits for the answer, or until a tool call needs a decision. Creates the conversation if it does not exist. If the answer takes too long, read it with get_conversation.",
    input: {
      type: "object",
      properties: {
        conv_id: {
          type: "string",
          description: "The id of the conversation. A new id creates a conversation.",
        },
        message: { type: "string", description: "The text of the message." },
        idempotency_key: {
          type: "string",
          description: "Idempotency key: a repeated call with the same key sends nothing twice.",
        },
        policy: {
          type: "string",
          enum: ["reject", "queue", "interrupt"],
          description: "What to do while another answer is in progress.",
        },
        wait_ms: WAIT,
      },
      required: ["conv_id", "message"],
    },
    readOnly: false,
    needs: ["conversation.write", "conversation.read"],
    call: (caller, { wait_ms, ...body }, signal) =>
      answering(async () => {
        const wait = readWait(wait_ms);
        const sent = await ask<ChatResponseJson>(options, caller, { method: "POST", path: "/chat", body });
        const path = `/chat/${encodeURIComponent(sent.conv_id!)}`;
        const ended = await until(options, wait, signal, async () => {
          const state = await ask<ConversationStateJson>(options, caller, { method: "GET", path });
          if (state.run?.run_id === sent.run_id && state.run?.status === "waiting") return state;
          const waits =
            state.run?.run_id === sent.run_id || state.queued?.some(({ run_id }) => run_id === sent.run_id);
          return waits ? undefined : state;
        });
        if (!ended) return { ...sent, status: "running" };
        // One that waits for a decision is not the last one yet.
        const run: RunJson = [ended.run, ended.last_run].find((each) => each?.run_id === sent.run_id) ?? {};
        const { status = "finished", error } = run;
        const messages = ended.messages?.filter(
          ({ run_id, role }) => run_id === sent.run_id && role !== "user",
        );
        return { ...sent, status, ...(error && { error }), messages };
      }),
  };
}

function followCorrelation(options: WaitingOptions): McpTool {
  return {
    name: "follow_correlation",
    description:
      "Waits until all work of a correlation is done, and returns its outcome. Returns at once if it waits for an approval.",
    input: {
      type: "object",
      properties: {
        correlation_id: { type: "string", description: "The correlation." },
        wait_ms: WAIT,
      },
      required: ["correlation_id"],
    },
    readOnly: true,
    needs: ["correlation.read"],
    call: (caller, { correlation_id, wait_ms }, signal) =>
      answering(() => settled(options, caller, String(correlation_id), readWait(wait_ms), signal)),
  };
}

function agentTool(options: WaitingOptions, agent: Agent): McpTool {
  const { name, consumes } = agent;
  const [type] = consumes;
  const { expose } = agent.options;
  const { schema, wrapped } = payloadSchema(options.schemas, type!);
  return {
    name: `agent_${name}`,
    title: name,
    description:
      typeof expose === "string"
        ? expose
        : `Sends work to the agent ${name} and waits for the artifacts that it publishes.`,
    input: schema,
    readOnly: false,
    needs: ["artifact.publish", "correlation.read", "artifact.read"],
    call: (caller, args, signal) =>
      answering(async () => {
        const correlation_id = options.context.newId();
        const payload = wrapped ? args.payload : args;
        await ask(options, caller, {
          method: "POST",
          path: "/blackboard/v1/artifacts",
          body: { type, payload, correlation_id },
        });
        const { status, dead, waits } = await settled(options, caller, correlation_id, WAIT_MS, signal);
        const path = `/blackboard/v1/artifacts?correlation_id=${correlation_id}&limit=${MAX_ARTIFACTS}`;
        const { artifacts = [] } = await ask<ArtifactListJson>(options, caller, { method: "GET", path });
        const outputs = artifacts
          .filter(({ produced_by }) => produced_by === producer(name))
          .map(({ id, type, payload }) => ({ id, type, payload }));
        return {
          correlation_id,
          status,
          ...(dead && dead !== "0" && { dead }),
          ...(waits && { waits }),
          outputs,
        };
      }),
  };
}

/** The input of an agent's tool: the payload if that is an object, otherwise an object with it. */
function payloadSchema(schemas: Schemas, type: string): { schema: JsonSchema; wrapped: boolean } {
  const given = schemas[type] && inputJsonSchema(schemas[type]);
  if (given?.type === "object") return { schema: given, wrapped: false };
  const payload = given ?? { description: `The payload of ${type}.` };
  return { schema: { type: "object", properties: { payload }, required: ["payload"] }, wrapped: true };
}

/** The state of a correlation, once nothing runs, or when the time is over. */
async function settled(
  options: WaitingOptions,
  caller: McpCaller,
  correlationId: string,
  waitMs: number,
  signal: AbortSignal,
): Promise<CorrelationStateJson> {
  const path = `/blackboard/v1/correlations/${encodeURIComponent(correlationId)}`;
  const read = () => ask<CorrelationStateJson>(options, caller, { method: "GET", path });
  const ended = await until(options, waitMs, signal, async () => {
    const state = await read();
    const waits = state.status === "running" || (state.status === "waiting" && !needsSomebody(state));
    return waits ? undefined : state;
  });
  return ended ?? read();
}

/** Whether it waits for what no time brings. */
function needsSomebody({ waits }: CorrelationStateJson): boolean {
  return waits?.approvals !== undefined || waits?.paused !== undefined;
}

/** Polls until there is an answer; undefined when the time is over. */
async function until<T>(
  { context }: WaitingOptions,
  waitMs: number,
  signal: AbortSignal,
  poll: () => Promise<T | undefined>,
): Promise<T | undefined> {
  const deadline = context.clock.now() + waitMs;
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    const found = await poll();
    const left = deadline - context.clock.now();
    if (found !== undefined || left <= 0 || signal.aborted) return found;
    await sleep(context.clock, Math.min(pause, left), signal);
  }
}

/** The answer of a route, or its error, thrown for the model to read. */
async function ask<T>({ api }: WaitingOptions, caller: McpCaller, request: ApiRequest): Promise<T> {
  const answer = await api(caller, request);
  if (answer.status >= 300) throw new ToolFailure(errorText(answer));
  return answer.body as T;
}

/** An error whose message the model gets. */
class ToolFailure extends Error {}

async function answering(work: () => Promise<object>): Promise<ToolAnswer> {
  try {
    return { value: await work() };
  } catch (error) {
    if (error instanceof ToolFailure || error instanceof KhalaError)
      return { failed: true, text: error.message };
    throw error;
  }
}

function readWait(sent: unknown): number {
  if (sent === undefined) return WAIT_MS;
  if (typeof sent === "number" && Number.isInteger(sent) && sent >= 0 && sent <= MAX_WAIT_MS) return sent;
  throw new KhalaError("invalid_request", `wait_ms must be a whole number from 0 to ${MAX_WAIT_MS}.`, {
    field: "wait_ms",
  });
}
