import { type Clock, keepAliveClock, sleep } from "../../kit/clock.ts";
import type { EngineEvent, EngineFactory, Turn } from "./engine.ts";
import { PublicError } from "./public_error.ts";

/** One step of a script: an event, or a pause. */
export type Step = EngineEvent | { readonly waitMs: number };

/** Answers a turn step by step. A script that waits by itself must end when the signal aborts. */
export type Script = (turn: Turn, signal: AbortSignal) => Iterable<Step> | AsyncIterable<Step>;

export interface ScriptedOptions {
  /** The answer; by default an echo with a few commands, see docs/ENGINES.md. */
  readonly script?: Script;
  /** Whether the script continues a turn with `resume`. The default script does, others only with this option. */
  readonly resumable?: boolean;
  /** A pause after each piece of text or reasoning; none by default. */
  readonly tokenMs?: number;
  /** The clock of the pauses. */
  readonly clock?: Clock;
}

/** A deterministic engine: the same turn gets the same events. */
export function scripted(options: ScriptedOptions = {}): EngineFactory {
  const { script = demoScript, tokenMs = 0, clock = keepAliveClock } = options;
  const { resumable = options.script === undefined } = options;
  return () => ({
    resumable,
    async *run(turn, signal) {
      if (signal.aborted) return;
      for await (const step of script(turn, signal)) {
        if (signal.aborted) return;
        if ("waitMs" in step) await sleep(clock, step.waitMs, signal);
        else {
          yield step;
          if (tokenMs > 0 && (step.text_delta || step.reasoning_delta)) await sleep(clock, tokenMs, signal);
        }
        if (signal.aborted) return;
      }
    },
  });
}

const MAX_WORDS = 100_000;
const SLOW_MS = 250;

/** Splits a text into words, each with the space before it. */
export function words(text: string): string[] {
  return text.match(/\s*\S+|\s+$/g) ?? [];
}

/** The default script: an echo, with commands (`/long`) and tools ("weather", "2 + 2"). */
function* demoScript(turn: Turn): Generator<Step> {
  const { message } = turn;
  let said = 0;
  for (const step of answer(turn)) {
    if ("text_delta" in step) said++;
    yield step;
  }
  const usage = { input_tokens: words(message).length, output_tokens: said };
  yield { run_finished: { reason: "stop", usage } };
}

function* answer(turn: Turn): Generator<Step> {
  const { message, history } = turn;
  const [, command, argument] = /^\/(approve|ask|fail|long|slow)\b\s*([\s\S]*)$/.exec(message.trim()) ?? [];
  if (command === "fail") {
    yield* text("This answer is about to break off");
    throw new PublicError(argument || "The script was asked to fail. Send another message.");
  }
  if (command === "approve" || command === "ask") return yield* withAPerson(turn, command, argument ?? "");
  if (command === "long") return yield* numbered(argument ?? "");
  if (command === "slow") return yield* slowly(argument || "A slow answer comes word by word.");
  const done = completedCalls(turn);
  if (done.size === 0)
    yield* reasoning(`${words(message).length} words to read, ${history.length} messages before them.`);
  yield* tools(turn, done);
  yield* text(`You said: ${message}`);
}

/** A tool that waits for an approval, or for the client. Says what came of it. */
function* withAPerson(
  { runId, resume }: Turn,
  tool: "approve" | "ask",
  what: string,
): Generator<EngineEvent> {
  const call = { tool_call_id: `${runId}-${tool}`, tool };
  const parts = (resume?.messages ?? []).flatMap((message) => message.parts ?? []);
  const made = parts.find((part) => part.tool?.tool_call_id === call.tool_call_id)?.tool;
  if (!made) {
    yield { tool_call: { ...call, input: { what }, ...(tool === "ask" && { waits_for: "output" }) } };
    if (tool === "approve") yield { tool_approval_requested: { tool_call_id: call.tool_call_id } };
    return;
  }
  const { decision, output, error } = made;
  if (tool === "ask") return yield* text(`The client said: ${error ?? JSON.stringify(output ?? null)}`);
  if (!decision?.approved) return yield* text(`Not done. ${decision?.reason ?? ""}`.trim());
  if (output === undefined) yield { tool_result: { ...call, output: { done: what } } };
  yield* text(`Done: ${what}`);
}

/** Numbered words, so that a lost, repeated or reordered one is visible. */
function* numbered(argument: string): Generator<EngineEvent> {
  const count = Math.min(Number.parseInt(argument, 10) || 1_000, MAX_WORDS);
  for (let i = 1; i <= count; i++) yield { text_delta: { text: i === 1 ? "1" : ` ${i}` } };
}

function* slowly(argument: string): Generator<Step> {
  for (const step of text(argument)) yield* [step, { waitMs: SLOW_MS }];
}

function* text(all: string): Generator<EngineEvent> {
  for (const word of words(all)) yield { text_delta: { text: word } };
}

function* reasoning(all: string): Generator<EngineEvent> {
  for (const word of words(all)) yield { reasoning_delta: { text: word } };
}

/** The tool calls that are kept of an interrupted answer. */
function completedCalls({ resume }: Turn): Set<string | undefined> {
  const parts = (resume?.messages ?? []).flatMap((message) => message.parts ?? []);
  return new Set(parts.flatMap(({ tool }) => (tool ? [tool.tool_call_id] : [])));
}

function* tools({ runId, message }: Turn, done: ReadonlySet<string | undefined>): Generator<EngineEvent> {
  const city = /\bweather\b(?:\s+(?:in|at|for)\s+([\p{L}-]+))?/iu.exec(message);
  if (city && !done.has(`${runId}-weather`)) yield* weather(`${runId}-weather`, city[1] ?? "Bern");
  const sum = /(-?\d{1,9})\s*([-+*])\s*(-?\d{1,9})/.exec(message);
  if (sum && !done.has(`${runId}-calculate`))
    yield* calculate(`${runId}-calculate`, Number(sum[1]), sum[2]!, Number(sum[3]));
}

function* weather(tool_call_id: string, city: string): Generator<EngineEvent> {
  const tool = "weather";
  yield { status: { text: `Looking up the weather in ${city}` } };
  yield { tool_call: { tool_call_id, tool, input: { city } } };
  if (city.toLowerCase() === "nowhere") {
    yield { tool_result: { tool_call_id, tool, error: "There is no such place." } };
    return;
  }
  // Invented, and the same for each call with a city.
  const letters = [...city].reduce((total, letter) => total + letter.codePointAt(0)!, 0);
  const output = { city, celsius: (letters % 35) - 5, sky: ["clear", "cloudy", "rain"][letters % 3]! };
  yield { tool_result: { tool_call_id, tool, output } };
  yield { custom: { name: `${tool}_result`, data: output } };
}

function* calculate(tool_call_id: string, a: number, operator: string, b: number): Generator<EngineEvent> {
  const tool = "calculate";
  const value = operator === "+" ? a + b : operator === "-" ? a - b : a * b;
  yield { tool_call: { tool_call_id, tool, input: { a, operator, b } } };
  yield { tool_result: { tool_call_id, tool, output: { value } } };
  yield { custom: { name: `${tool}_result`, data: { value } } };
}
