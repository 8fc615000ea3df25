import { KhalaError } from "@khala/contracts";
import type { TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import { jsonSchema, tool, UnsupportedFunctionalityError } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { expect, test } from "vitest";
import { z } from "zod";
import { must, ROOT } from "../../../../../scripts/run.ts";
import { aiSdk } from "./ai_sdk.ts";
import { PublicError } from "./public_error.ts";
import { play, textOf, turnOf } from "./test_support.ts";

type StreamResult = Awaited<ReturnType<MockLanguageModelV4["doStream"]>>;
type Part = StreamResult["stream"] extends ReadableStream<infer P> ? P : never;

const usage = {
  inputTokens: { total: 3, noCache: 3, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 10, text: 10, reasoning: undefined },
};
const text = (...deltas: string[]): Part[] => [
  { type: "text-start", id: "t" },
  ...deltas.map((delta): Part => ({ type: "text-delta", id: "t", delta })),
  { type: "text-end", id: "t" },
];
const finish = (unified: "stop" | "length" | "tool-calls" | "error" = "stop"): Part => ({
  type: "finish",
  finishReason: { unified, raw: undefined },
  usage,
});
const answers = (...all: Part[][]) =>
  new MockLanguageModelV4({
    doStream: all.map((parts) => ({ stream: convertArrayToReadableStream(parts) })),
  });

/** A tool that greets, and fails for Eve. */
const greet = tool({
  description: "Greets somebody.",
  inputSchema: jsonSchema<{ name: string }>({
    type: "object",
    properties: { name: { type: "string" } },
    required: ["name"],
  }),
  execute({ name }) {
    if (name === "Eve") throw new Error("Eve is not greeted.");
    return { greeting: `Hello ${name}`, at: new Date(0) };
  },
});
const callGreet = (toolCallId: string, name: string): Part => ({
  type: "tool-call",
  toolCallId,
  toolName: "greet",
  input: JSON.stringify({ name }),
});

test("streams text and reasoning as they arrive, and ends with the reason and the usage", async () => {
  const model = answers([
    { type: "stream-start", warnings: [] },
    { type: "reasoning-start", id: "r" },
    { type: "reasoning-delta", id: "r", delta: "Hm. " },
    { type: "reasoning-delta", id: "r", delta: "" },
    { type: "reasoning-end", id: "r" },
    ...text("Good", " morning"),
    finish("length"),
  ]);
  expect(await play(aiSdk(model), turnOf("Hi"))).toEqual({
    events: [
      { reasoning_delta: { text: "Hm. " } },
      { text_delta: { text: "Good" } },
      { text_delta: { text: " morning" } },
      { run_finished: { reason: "length", usage: { input_tokens: 3, output_tokens: 10 } } },
    ],
    error: undefined,
  });
});

test("runs tools, and the model continues with their results or failures", async () => {
  const model = answers(
    [callGreet("1", "Ada"), callGreet("2", "Eve"), finish("tool-calls")],
    [...text("Done."), finish()],
  );
  const thrown: unknown[] = [];
  const reportError = (of: unknown) => `The tool failed (error ${thrown.push(of)}).`;
  const turn = turnOf("Greet them", { reportError });
  const { events, error } = await play(aiSdk(model, { tools: { greet } }), turn);
  expect(error).toBeUndefined();
  expect(thrown).toMatchObject([{ message: "Eve is not greeted." }]);
  expect(events).toContainEqual({ tool_call: { tool_call_id: "1", tool: "greet", input: { name: "Ada" } } });
  expect(events).toContainEqual({
    tool_result: {
      tool_call_id: "1",
      tool: "greet",
      output: { greeting: "Hello Ada", at: "1970-01-01T00:00:00.000Z" },
    },
  });
  expect(events).toContainEqual({
    tool_result: { tool_call_id: "2", tool: "greet", error: "The tool failed (error 1)." },
  });
  expect(textOf(events)).toBe("Done.");
  expect(events.at(-1)).toEqual({
    run_finished: { reason: "stop", usage: { input_tokens: 6, output_tokens: 20 } },
  });
});

test("asks the model at most maxSteps times", async () => {
  const model = answers([callGreet("1", "Ada"), finish("tool-calls")], [...text("Never."), finish()]);
  const { events } = await play(aiSdk(model, { tools: { greet }, maxSteps: 1 }), turnOf("Greet"));
  expect(model.doStreamCalls).toHaveLength(1);
  expect(events.at(-1)).toMatchObject({ run_finished: { reason: "tool-calls" } });
});

test("gives the model instructions, settings and history: calls with their results, no reasoning", async () => {
  const history: TranscriptMessageJson[] = [
    { message_id: "1", role: "user", parts: [{ text: "Greet Ada and Eve" }] },
    {
      message_id: "2",
      role: "assistant",
      parts: [
        { reasoning: "secret" },
        { text: "At once." },
        { tool: { tool_call_id: "a", tool: "greet", input: { name: "Ada" }, output: { ok: true } } },
        { tool: { tool_call_id: "b", tool: "greet", input: { name: "Eve" }, error: "No." } },
        { custom: { name: "greet_result", data: 1 } },
        { text: "Half done." },
        { tool: { tool_call_id: "c", tool: "greet", input: { name: "Bob" } } },
      ],
    },
    { message_id: "3", role: "assistant", parts: [] },
    { message_id: "4", role: "system", parts: [{ text: "Be short." }] },
  ];
  const model = answers([...text("Yes"), finish()]);
  const system = async ({ subject }: { subject: string }) => `You talk to ${subject}.`;
  await play(aiSdk(model, { system, settings: { temperature: 0.5 } }), turnOf("And now?", { history }));
  const [call] = model.doStreamCalls;
  expect(call!.temperature).toBe(0.5);
  const result = (id: string, output: object) => ({
    type: "tool-result",
    toolCallId: id,
    toolName: "greet",
    output,
  });
  const asked = (id: string, name: string) => ({
    type: "tool-call",
    toolCallId: id,
    toolName: "greet",
    input: { name },
  });
  expect(call!.prompt).toMatchObject([
    { role: "system", content: "You talk to ada." },
    { role: "user", content: [{ type: "text", text: "Greet Ada and Eve" }] },
    {
      role: "assistant",
      content: [{ type: "text", text: "At once." }, asked("a", "Ada"), asked("b", "Eve")],
    },
    {
      role: "tool",
      content: [
        result("a", { type: "json", value: { ok: true } }),
        result("b", { type: "error-text", value: "No." }),
      ],
    },
    { role: "assistant", content: [{ type: "text", text: "Half done." }, asked("c", "Bob")] },
    { role: "tool", content: [result("c", { type: "error-text", value: "The call was interrupted." })] },
    { role: "system", content: "Be short." },
    { role: "user", content: [{ type: "text", text: "And now?" }] },
  ]);
});

test("an interrupted answer continues after its completed tool calls, without repeating them", async () => {
  const model = answers([...text("Done."), finish()]);
  const parts = [
    { text: "One moment." },
    { tool: { tool_call_id: "1", tool: "greet", input: { name: "Ada" }, output: { greeting: "Hello Ada" } } },
  ];
  const messages = [{ message_id: "m1", role: "assistant", run_id: "r1", parts, status: "streaming" }];
  const engine = aiSdk(model, { tools: { greet } })(turnOf("Greet Ada"));
  expect(engine.resumable).toBe(true);
  const { events } = await play(engine, turnOf("Greet Ada", { resume: { attempt: 1, messages } }));
  expect(textOf(events)).toBe("Done.");
  expect(events.some(({ tool_call }) => tool_call)).toBe(false);
  const prompt = model.doStreamCalls[0]!.prompt.filter(({ role }) => role !== "system");
  expect(prompt.map(({ role }) => role)).toEqual(["user", "assistant", "tool"]);
});

const PNG = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");

test("files of the message and the history reach the model as bytes, remote ones as URLs", async () => {
  const big = { rows: [1, 2, 3] };
  const files: Record<string, { mediaType: string; bytes: Uint8Array }> = {
    "/files/a": { mediaType: "image/png", bytes: PNG },
    "/files/b": { mediaType: "application/json", bytes: Buffer.from(JSON.stringify(big)) },
  };
  const read: string[] = [];
  const readFile = async (url: string) => {
    read.push(url);
    const file = files[url];
    if (!file) throw new KhalaError("not_found", "There is no such file.");
    return { name: "a", ...file };
  };
  const picture = { file: { url: "/files/a", media_type: "image/png", name: "a.png" } };
  const pdf = { url: "https://files.example/b.pdf", media_type: "application/pdf", name: "b.pdf" };
  const gone = { url: "/files/gone", media_type: "image/png", name: "gone.png" };
  const history: TranscriptMessageJson[] = [
    { message_id: "1", role: "user", parts: [{ text: "Draw" }, { file: gone }] },
    {
      message_id: "2",
      role: "assistant",
      parts: [
        { tool: { tool_call_id: "a", tool: "greet", input: {}, output: { file: "/files/b" } } },
        picture,
        { text: "Here." },
      ],
    },
  ];
  const model = new MockLanguageModelV4({
    supportedUrls: { "*/*": [/.*/] },
    doStream: { stream: convertArrayToReadableStream([...text("Yes"), finish()]) },
  });
  const parts = [{ text: "What is this?" }, picture, { file: pdf }];
  const { error } = await play(aiSdk(model), turnOf("What is this?", { parts, history, readFile }));
  expect(error).toBeUndefined();
  const [call] = model.doStreamCalls;
  const image = {
    type: "file",
    mediaType: "image/png",
    filename: "a.png",
    data: { type: "data", data: PNG },
  };
  expect(call!.prompt).toMatchObject([
    {
      role: "user",
      content: [
        { type: "text", text: "Draw" },
        { type: "text", text: '[The file "gone.png" is left out.]' },
      ],
    },
    { role: "assistant", content: [{ type: "tool-call", toolCallId: "a" }] },
    { role: "tool", content: [{ toolCallId: "a", output: { type: "json", value: big } }] },
    { role: "assistant", content: [image, { type: "text", text: "Here." }] },
    {
      role: "user",
      content: [
        { type: "text", text: "What is this?" },
        image,
        { type: "file", mediaType: "application/pdf", data: { type: "url", url: new URL(pdf.url) } },
      ],
    },
  ]);
  expect(read.toSorted()).toEqual(["/files/a", "/files/b", "/files/gone"]);
});

test("files of text reach the model as text, which every provider takes", async () => {
  const types = ["text/plain", "text/csv", "application/json", "application/ld+json", "image/svg+xml"];
  const model = new MockLanguageModelV4({
    doStream: { stream: convertArrayToReadableStream([...text("Yes"), finish()]) },
  });
  const parts = types.map((media_type, i) => ({ file: { url: `/files/${i}`, media_type, name: `f${i}` } }));
  const readFile = async (url: string) => ({
    name: "f",
    mediaType: types[Number(url.slice("/files/".length))]!,
    bytes: Buffer.from("a,b\n1,ü"),
  });
  const { error } = await play(aiSdk(model), turnOf("", { parts, readFile }));
  expect(error).toBeUndefined();
  expect(model.doStreamCalls[0]!.prompt).toMatchObject([
    { content: types.map((_, i) => ({ type: "text", text: `[The file "f${i}"]\na,b\n1,ü` })) },
  ]);
});

test("says that the model cannot read a file", async () => {
  const model = new MockLanguageModelV4({
    doStream: async () => {
      throw new UnsupportedFunctionalityError({ functionality: "file part media type application/zip" });
    },
  });
  const { error } = await play(aiSdk(model), turnOf("Unpack this"));
  expect(error).toMatchObject({
    code: "refused",
    message: "The model cannot read a file of this conversation. Edit the message and remove the file.",
  });
});

test("images and sources from the model become parts of the answer", async () => {
  const model = answers([
    { type: "source", sourceType: "url", id: "s1", url: "https://a.example", title: "A" },
    { type: "file", mediaType: "image/png", data: { type: "data", data: PNG.toString("base64") } },
    finish(),
  ]);
  const { events } = await play(aiSdk(model), turnOf("Draw"));
  expect(events.slice(0, 2)).toEqual([
    { source_added: { source: { source_id: "s1", url: "https://a.example", title: "A" } } },
    {
      file_added: {
        file: { url: `data:image/png;base64,${PNG.toString("base64")}`, media_type: "image/png" },
      },
    },
  ]);
});

test("model, system prompt, tools and settings may depend on the turn, with typed params", async () => {
  const used: { conversation: string; signal: AbortSignal | undefined }[] = [];
  const model = answers([callGreet("1", "Ada"), finish("tool-calls")], [...text("Done."), finish()]);
  const engine = aiSdk(({ params }) => (params.fast ? model : answers([finish()])), {
    params: z.object({ fast: z.boolean(), heat: z.coerce.number() }),
    system: ({ params, sender }) => `${sender}: ${params.heat.toFixed(1)}`,
    settings: ({ params }) => ({ temperature: params.heat }),
    tools: async ({ convId }) => ({
      greet: tool({
        inputSchema: jsonSchema<{ name: string }>({ type: "object" }),
        execute(_, { abortSignal }) {
          used.push({ conversation: convId, signal: abortSignal });
          return convId;
        },
      }),
    }),
  });
  const stop = new AbortController();
  const params = { fast: true, heat: "0.5" };
  const played = await play(engine, turnOf("Hi", { convId: "c7", params }), {
    signal: stop.signal,
    onEvent: ({ run_finished }) => run_finished && stop.abort(),
  });
  expect(played.error).toBeUndefined();
  expect(model.doStreamCalls[0]).toMatchObject({
    temperature: 0.5,
    prompt: [{ role: "system", content: "ada: 0.5" }, { role: "user" }],
  });
  expect(used).toHaveLength(1);
  expect(used[0]).toMatchObject({ conversation: "c7", signal: { aborted: true } });
});

test("a conversation can have a model of its own", async () => {
  const engine = aiSdk(({ convId }) => answers([...text(`I am for ${convId}`), finish()]));
  expect(textOf((await play(engine, turnOf("Hi", { convId: "c7" }))).events)).toBe("I am for c7");
});

test("throws a readable error in the middle of an answer, after the text before it", async () => {
  const parts = [...text("Half an ans"), { type: "error", error: new Error("The GPU caught fire") } as const];
  const { events, error } = await play(aiSdk(answers([...parts, finish("error")])), turnOf("Hi"));
  expect(textOf(events)).toBe("Half an ans");
  expect(error).toMatchObject({ name: "Error", message: "The GPU caught fire" });
});

test("a refusing provider, a broken stream and a final error all fail the run", async () => {
  const failing = (error: Error) =>
    new MockLanguageModelV4({
      async doStream() {
        throw error;
      },
    });
  const breaking = new MockLanguageModelV4({
    doStream: {
      stream: new ReadableStream({
        pull: (controller) => controller.error(new Error("socket hang up")),
      }),
    },
  });
  const thrown = async (model: MockLanguageModelV4) =>
    (await play(aiSdk(model, { settings: { maxRetries: 0 } }), turnOf("Hi"))).error;
  const quota = Object.assign(new Error("Quota of key sk-1 exceeded"), { statusCode: 429 });
  expect(await thrown(failing(quota))).toMatchObject({ code: "rate_limited", cause: quota });
  const long = new Error("This model's maximum context length is 8192 tokens");
  expect(await thrown(failing(long))).toMatchObject({ code: "context_length" });
  const refused = new Error("fetch failed", { cause: Object.assign(new Error(), { code: "ECONNREFUSED" }) });
  expect(await thrown(failing(refused))).toMatchObject({ code: "network" });
  const own = new PublicError("No model for this plan.", { code: "refused" });
  expect(await thrown(failing(own))).toBe(own);
  expect((await thrown(breaking))?.message).toBe("socket hang up");
  expect((await thrown(answers([...text("So"), finish("error")])))?.message).toContain("gave no reason");
});

test("an abort reaches the provider and ends the run without an error", async () => {
  const stop = new AbortController();
  let providers: AbortSignal | undefined;
  const model = new MockLanguageModelV4({
    async doStream({ abortSignal }) {
      providers = abortSignal;
      return {
        stream: new ReadableStream({
          start(controller) {
            for (const part of text("Once upon").slice(0, 2)) controller.enqueue(part);
            abortSignal!.addEventListener("abort", () => controller.error(abortSignal!.reason));
          },
        }),
      };
    },
  });
  const { events, error } = await play(aiSdk(model), turnOf("A story"), {
    signal: stop.signal,
    onEvent: () => stop.abort(),
  });
  expect(error).toBeUndefined();
  expect(events).toEqual([{ text_delta: { text: "Once upon" } }]);
  expect(providers?.aborted).toBe(true);
});

test("a consumer that stops reading ends the request to the provider", async () => {
  const aborted = Promise.withResolvers<void>();
  const model = new MockLanguageModelV4({
    async doStream({ abortSignal }) {
      abortSignal!.addEventListener("abort", () => aborted.resolve());
      return {
        stream: new ReadableStream({
          start: (controller) => text("Once").forEach((part) => void controller.enqueue(part)),
        }),
      };
    },
  });
  const turn = turnOf("A story");
  for await (const _ of aiSdk(model)(turn).run(turn, new AbortController().signal)) break;
  await aborted.promise;
});

test("names the package to install when `ai` is missing", async () => {
  const engine = new URL("./ai_sdk.ts", import.meta.url).href;
  const program = `
    import { registerHooks } from "node:module";
    registerHooks({
      resolve(name, context, next) {
        if (name === "ai") throw Object.assign(new Error("No ai"), { code: "ERR_MODULE_NOT_FOUND" });
        return next(name, context);
      },
    });
    const { aiSdk } = await import(${JSON.stringify(engine)});
    const { run } = aiSdk("any/model")({});
    await run({}, new AbortController().signal).next().catch((error) => console.log(error.message));`;
  const printed = await must(
    process.execPath,
    ["--conditions=khala-source", "--input-type=module", "-e", program],
    ROOT,
  );
  expect(printed).toContain("Run `npm install ai`.");
});
