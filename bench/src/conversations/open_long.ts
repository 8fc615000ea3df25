import { setTimeout } from "node:timers/promises";
import { SCOPES } from "@khala/contracts";
import { watchOtherLoad } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { range } from "../kit/report.ts";
import { type Spread, spread } from "../kit/stats.ts";
import { mintTokens } from "../sync/tokens.ts";
import { convId, type PartRunner, program } from "./bench.ts";
import type { GatewayProgram } from "./programs/gateway.ts";

const SHORT = 10;
const LONG = 10_000;
/** The most events of one request. */
const BATCH = 100;
const TEXT = "A message of about the length that people write to each other. ".repeat(3);
const WARM_UP = 20;

interface Place {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** (f) What it takes to open a conversation of 10,000 messages, beside one of 10. */
export const openLong: PartRunner = async ({ postgres, rounds, quick }) => {
  const otherLoad = watchOtherLoad();
  const opens = quick ? 100 : 500;
  await using gateway = startProgram<GatewayProgram>(program("gateway"));
  // It forgets a conversation as soon as nobody follows it: each time is the first one.
  const { port } = await gateway.call("open", { store: { url: await postgres.create("khala") }, graceMs: 0 });
  const [token] = await mintTokens(1, SCOPES.chat);
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  const at: Place = { url: `http://127.0.0.1:${port}/chat`, headers };
  const counts = [SHORT, LONG];
  for (const [n, count] of counts.entries()) {
    await begin(at, convId(n));
    await gateway.call("written", undefined);
    await gateway.call("release", undefined);
    await fill(at, convId(n), count);
  }
  const times = counts.map((): Spread[] => []);
  for (let round = 0; round < rounds; round++)
    for (const n of counts.keys()) times[n]!.push(spread(await open(at, convId(n), opens)));
  const [short, long] = times.map((all) => spread(all.map(({ median }) => median))) as [Spread, Spread];
  const row = (count: number, time: Spread) => [`${count.toLocaleString("en")} messages`, range(time)];
  return {
    title: "(f) Opening a conversation of 10,000 messages beside one of 10",
    how: [
      `GET /chat/:id: the newest 100 messages, of ${TEXT.length} characters each; on PostgreSQL, with nothing of the conversation in memory`,
      `${opens} times one after the other in each round; ms until the answer is read; the median of each round, and of these the median with the least and the greatest`,
    ],
    tables: [{ head: ["", "ms [min–max]"], rows: [row(SHORT, short), row(LONG, long)] }],
    bars: [{ name: "time, 10,000 messages to 10", got: long.median / short.median, most: 2 }],
    otherLoad: otherLoad(),
  };
};

async function begin({ url, headers }: Place, conv: string): Promise<void> {
  const body = JSON.stringify({ conv_id: conv, message: JSON.stringify({ tokens: 1 }) });
  await accepted(await fetch(url, { method: "POST", headers, body }));
}

/** Messages of others, when nothing is under way any more. */
async function fill({ url, headers }: Place, conv: string, count: number): Promise<void> {
  while (!(await accepted(await fetch(`${url}/${conv}`, { headers }))).includes('"last_run"'))
    await setTimeout(20);
  // The question is one, and its answer another.
  for (let left = count - 2; left > 0; left -= BATCH) {
    const event = { message: { text: TEXT } };
    const events = Array.from({ length: Math.min(left, BATCH) }, () => event);
    await accepted(
      await fetch(`${url}/${conv}/events`, { method: "POST", headers, body: JSON.stringify({ events }) }),
    );
  }
}

async function open({ url, headers }: Place, conv: string, times: number): Promise<number[]> {
  const taken: number[] = [];
  for (let i = 0; i < WARM_UP + times; i++) {
    const began = performance.now();
    await accepted(await fetch(`${url}/${conv}`, { headers }));
    if (i >= WARM_UP) taken.push(performance.now() - began);
  }
  return taken;
}

async function accepted(response: Response): Promise<string> {
  const text = await response.text();
  if (!response.ok) throw new Error(`${response.url} was answered ${response.status}: ${text}`);
  return text;
}
