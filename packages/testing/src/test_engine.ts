import type { EventJson, PartJson, TranscriptMessageJson } from "@khala/contracts/conversation/v1";
import type { ArtifactDraft } from "@khala/server";
import { type EngineFactory, type Resume, type Turn, type TurnFile, testTurn } from "@khala/server/engines";
import { type Clock, runEngineTurn, systemClock, Transcript } from "@khala/server/testing";

/** What a message may have beside its text. */
export interface SayOptions<Params> {
  readonly params?: Params;
  /** Files of the message; the text comes before them. */
  readonly parts?: readonly PartJson[];
  /** The answer continues after these messages, as on another server. */
  readonly resume?: Resume;
  /** Aborts to stop the run. */
  readonly signal?: AbortSignal;
}

/** An engine's answer to one message. */
export interface Answer {
  /** The text of the answer, and its reasoning. */
  readonly text: string;
  readonly reasoning: string;
  /** The messages of the answer, with tool calls, files and sources. */
  readonly messages: readonly TranscriptMessageJson[];
  /** Every event, in order; those of `turn.post` too. */
  readonly events: readonly EventJson[];
  /** Drafts that the engine published on the blackboard. */
  readonly published: readonly ArtifactDraft[];
  readonly reason: string | undefined;
  readonly usage: NonNullable<EventJson["run_finished"]>["usage"];
}

/** An engine in one conversation: it remembers what was said. */
export interface TestedEngine<Params> {
  /** Sends a message, and resolves with the answer. Throws what the engine throws, and refuses events that a server would refuse. */
  say(message: string, options?: SayOptions<Params>): Promise<Answer>;
  /** The conversation so far. */
  readonly history: readonly TranscriptMessageJson[];
}

export interface TestEngineOptions {
  readonly clock?: Clock;
  /** Files that the engine may read, by their address. */
  readonly files?: Readonly<Record<string, TurnFile>>;
}

/** Tests an engine: no server, no database; params are checked by its schema. */
export function testEngine<Params extends object>(
  factory: EngineFactory<Params>,
  { clock = systemClock, files = {} }: TestEngineOptions = {},
): TestedEngine<Params> {
  const key = { convId: "c1", org: "demo", subject: "ada" };
  const engine = factory(key);
  let history: readonly TranscriptMessageJson[] = [];
  let turns = 0;

  async function say(message: string, options: SayOptions<Params> = {}): Promise<Answer> {
    const { params = {}, parts = [], resume, signal = new AbortController().signal } = options;
    const [runId, messageId] = [`r${++turns}`, `m${turns}`];
    const events: EventJson[] = [];
    const published: ArtifactDraft[] = [];
    const texts = message === "" ? [] : [{ text: message }];
    const usual = testTurn(message);
    const turn: Turn = {
      ...usual,
      ...{ ...key, runId, messageId, history, signal, params: { ...params } },
      parts: [...texts, ...parts],
      ...(resume && { resume }),
      async post(...posted) {
        for (const event of posted) events.push(event);
      },
      readFile: async (url) => files[url] ?? usual.readFile(url),
      async publish(drafts) {
        published.push(...drafts);
        return drafts.map(({ id = crypto.randomUUID() }) => ({ id, status: "published" }));
      },
    };
    const publish = (event: EventJson) => void events.push(event);
    const { finished } = await runEngineTurn({ engine, turn, signal, clock, publish });
    const question = { message_id: `q${turns}`, role: "user", parts: [...turn.parts], run_id: runId };
    const transcript = new Transcript();
    for (const event of events) transcript.add({ runId, event });
    transcript.add({ runId, event: { run_finished: finished } });
    const messages = transcript.last();
    history = [...history, { ...question, status: "done" }, ...messages];
    const all = messages.flatMap((each) => each.parts ?? []);
    return {
      text: all.map(({ text = "" }) => text).join(""),
      reasoning: all.map(({ reasoning = "" }) => reasoning).join(""),
      ...{ messages, events, published, reason: finished.reason, usage: finished.usage },
    };
  }

  return {
    say,
    get history() {
      return history;
    },
  };
}
