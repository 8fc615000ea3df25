import { watchOtherLoad } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { figure, range, type Table } from "../kit/report.ts";
import { spread } from "../kit/stats.ts";
import { tempFolder } from "../kit/temp_folder.ts";
import { PIECE, TOKEN } from "./answer.ts";
import { type Bench, type PartRunner, program } from "./bench.ts";
import type { DurableStreamsServer } from "./programs/durable_streams_server.ts";
import type { ResumableStreamServer } from "./programs/resumable_stream_server.ts";
import type { Resumed, ResumeLoad } from "./programs/resume_load.ts";
import { type RedisServer, sent, startRedis } from "./redis.ts";
import { LONG, PACED, type ResumeResult, resumeKhala, WAYS } from "./resume_khala.ts";

const CHARS = LONG.tokens * TOKEN.length;
const RESUMABLE = "resumable-stream, another server";
const IN_MEMORY = "@durable-streams/server, in memory";
const IN_FILES = "@durable-streams/server, in files";

/** (c) Somebody comes back to a long answer that is still being made. */
export const resume: PartRunner = async (bench) => {
  const otherLoad = watchOtherLoad();
  await using redis = await startRedis();
  const khala = await resumeKhala(bench, redis);
  const results = [
    khala,
    await resumableStream(bench, redis),
    await durableStreams(bench, IN_MEMORY),
    await durableStreams(bench, IN_FILES),
  ];
  const collapsed = timeOf(khala.resumed, WAYS.collapsedThere, "complete").median;
  const inFiles = timeOf(results[3]!.resumed, IN_FILES, "complete").median;
  return {
    title: "(c) Resume of a 1 MB answer",
    how: [
      ...resumeHow,
      "resumable-stream: the routes of its README over HTTP on ioredis; the answer is made by one server, which has all of it in memory, and resumed from another one; once the answer has ended, it cannot be resumed at all",
      `durable-streams: the reference server of its README; written in pieces of ${PIECE} characters, read over HTTP from offset -1 until it is up to date; it uses no Redis`,
      `commands per token: what all servers together sent to Redis while the answer was written; at first as fast as it goes with no reader, then ${figure(PACED.tokens)} tokens at ${PACED.perSecond} a second with one that has resumed`,
    ],
    tables: [resumeTable(results)],
    bars: [
      {
        name: "complete, Khala collapsed on another server ÷ durable-streams in files",
        got: collapsed / inFiles,
        most: 2,
      },
    ],
    otherLoad: otherLoad(),
  };
};

/** How it is measured on any store. */
export const resumeHow = [
  `${figure(LONG.tokens)} tokens of four characters are written, and the run goes on; a client connects and gets all of it; timed from before the connection is made`,
  "Khala: the run is made by its engine and published in its window of 30 ms or 128 characters; the first byte is the first one after the hello; another server has nothing of it in memory",
];

/** What came out, as a table. */
export function resumeTable(results: readonly ResumeResult[]): Table {
  const withRedis = results.some(({ unread }) => unread !== undefined);
  const perToken = (value: number | undefined) => (value === undefined ? "–" : value.toFixed(4));
  return {
    head: [
      "",
      "first byte ms",
      "complete ms",
      "MB on the wire",
      ...(withRedis ? ["Redis commands per token, flat out, unread", "paced, one reader"] : []),
    ],
    rows: results.flatMap(({ resumed, unread, paced }) =>
      [...resumed.keys()].map((way) => [
        way,
        range(timeOf(resumed, way, "first")),
        range(timeOf(resumed, way, "complete")),
        figure(resumed.get(way)![0]!.bytes / 1e6),
        ...(withRedis ? [perToken(unread), perToken(paced)] : []),
      ]),
    ),
  };
}

function timeOf(resumed: ReadonlyMap<string, readonly Resumed[]>, way: string, what: "first" | "complete") {
  return spread(resumed.get(way)!.map((result) => result[what]));
}

async function resumableStream({ rounds }: Bench, redis: RedisServer): Promise<ResumeResult> {
  await using maker = startProgram<ResumableStreamServer>(program("resumable_stream_server"));
  await using other = startProgram<ResumableStreamServer>(program("resumable_stream_server"));
  await using load = startProgram<ResumeLoad>(program("resume_load"));
  const here = await maker.call("open", { redis: redis.url });
  const there = await other.call("open", { redis: redis.url });

  const before = await redis.commands();
  await load.call("begin", { ...here, id: "long", answer: LONG });
  await maker.call("written", undefined);
  const unread = sent(before, await redis.commands(), false) / LONG.tokens;

  await load.call("stream", { ...there, id: "long", chars: CHARS });
  const results: Resumed[] = [];
  for (let round = 0; round < rounds; round++)
    results.push(await load.call("stream", { ...there, id: "long", chars: CHARS }));

  const beforePaced = await redis.commands();
  await load.call("begin", { ...here, id: "paced", answer: PACED });
  await load.call("stream", { ...there, id: "paced", chars: PACED.tokens * TOKEN.length });
  const paced = sent(beforePaced, await redis.commands(), false) / PACED.tokens;
  await maker.call("release", undefined);
  return { resumed: new Map([[RESUMABLE, results]]), unread, paced };
}

async function durableStreams({ rounds }: Bench, way: string): Promise<ResumeResult> {
  using folder = tempFolder("durable-streams");
  await using server = startProgram<DurableStreamsServer>(program("durable_streams_server"));
  await using load = startProgram<ResumeLoad>(program("resume_load"));
  const at = await server.call("open", way === IN_FILES ? { folder: folder.path } : {});
  await load.call("create", { ...at, id: "long" });
  // Each piece waits for the disk, and a call must not take for ever.
  const calls = 16;
  for (let i = 0; i < calls; i++)
    await load.call("write", { ...at, id: "long", pieces: CHARS / PIECE / calls });
  await load.call("catchUp", { ...at, id: "long", chars: CHARS });
  const results: Resumed[] = [];
  for (let round = 0; round < rounds; round++)
    results.push(await load.call("catchUp", { ...at, id: "long", chars: CHARS }));
  return { resumed: new Map([[way, results]]) };
}
