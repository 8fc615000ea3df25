import type { Action } from "../../access/actions.ts";
import type { JsonSchema } from "../openapi/json_schema.ts";
import type { McpCaller } from "./caller.ts";

/** The answer of a tool. */
export interface ToolAnswer {
  readonly failed?: true;
  /** For the model to read, where it failed. */
  readonly text?: string;
  /** An object, where it did not fail. */
  readonly value?: unknown;
}

/** A tool that models may call. */
export interface McpTool {
  readonly name: string;
  readonly title?: string;
  readonly description: string;
  /** The schema of its arguments, an object. */
  readonly input: JsonSchema;
  readonly readOnly: boolean;
  /** The action its caller's token must allow; otherwise it is not listed. */
  readonly needs: readonly Action[];
  call(caller: McpCaller, args: Readonly<Record<string, unknown>>, signal: AbortSignal): Promise<ToolAnswer>;
}
