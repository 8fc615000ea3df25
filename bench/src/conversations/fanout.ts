import { SCOPES } from "@khala/contracts";
import { cpuSeconds, watchOtherLoad } from "../kit/proc.ts";
import { type Program, startProgram } from "../kit/program.ts";
import { figure, range } from "../kit/report.ts";
import { spread } from "../kit/stats.ts";
import { mintTokens } from "../sync/tokens.ts";
import { type PartRunner, program } from "./bench.ts";
import type { FanoutLoad } from "./programs/fanout_load.ts";
import type { GatewayProgram } from "./programs/gateway.ts";
import type { SocketioServer } from "./programs/socketio_server.ts";
import { startRedis } from "./redis.ts";

const SOCKETS = 1_000;
const WINDOWS = [1, 16, 256] as const;
const BURST = 256;
const KHALA = "Khala";
const SOCKETIO = "Socket.IO 4, redis-streams-adapter";

interface Contestant {
  readonly serverPid: number;
  readonly load: Program<FanoutLoad>;
}

interface Sample {
  readonly rate: number;
  /** Seconds of the server's CPU per million deliveries. */
  readonly cpu: number;
  readonly p50: number;
  readonly p99: number;
}

/** (b) One conversation, 1,000 sockets. */
export const fanout: PartRunner = async ({ postgres, rounds, quick }) => {
  await using stack = new AsyncDisposableStack();
  const otherLoad = watchOtherLoad();
  const redis = stack.use(await startRedis());
  const contestants = new Map<string, Contestant>();

  const gateway = stack.use(startProgram<GatewayProgram>(program("gateway")));
  const store = { url: await postgres.create("khala"), redis: redis.url };
  const { port } = await gateway.call("open", { store });
  const [token] = await mintTokens(1, SCOPES.chat);
  const ours = stack.use(startProgram<FanoutLoad>(program("fanout_load")));
  await ours.call("khala", { port, token: token!, sockets: SOCKETS, store });
  contestants.set(KHALA, { serverPid: gateway.pid, load: ours });

  const io = stack.use(startProgram<SocketioServer>(program("socketio_server")));
  const theirs = stack.use(startProgram<FanoutLoad>(program("fanout_load")));
  const opened = await io.call("open", { redis: redis.url });
  await theirs.call("socketio", { ...opened, sockets: SOCKETS, redis: redis.url });
  contestants.set(SOCKETIO, { serverPid: io.pid, load: theirs });

  const ms = quick ? 500 : 1_500;
  const samples = new Map<string, Sample[]>();
  for (let round = -1; round < rounds; round++) {
    for (const window of WINDOWS) {
      for (const [name, { serverPid, load }] of contestants) {
        const before = cpuSeconds(serverPid);
        const result = await load.call("run", { window, ms: round < 0 ? ms / 3 : ms });
        if (round < 0) continue;
        const sample = {
          rate: result.deliveries / result.seconds,
          cpu: ((cpuSeconds(serverPid) - before) / result.deliveries) * 1e6,
          p50: result.p50,
          p99: result.p99,
        };
        const key = `${name} ${window}`;
        samples.set(key, [...(samples.get(key) ?? []), sample]);
      }
    }
  }

  const of = (name: string, window: number, what: keyof Sample) =>
    spread(samples.get(`${name} ${window}`)!.map((sample) => sample[what]));
  const ratio = (over: string, under: string, what: keyof Sample) =>
    of(over, BURST, what).median / of(under, BURST, what).median;
  return {
    title: `(b) Fan-out of one conversation to ${figure(SOCKETS)} sockets`,
    how: [
      "a token is in flight from the call that appends it until all sockets have it; latency is per delivery, from that call, on every 50th socket",
      "Khala: appended by another process through the library's log; every token is in its stream, with a sequence and a cursor",
      "Socket.IO: emitted to a room by another server of its cluster, with the same data; WebSocket alone, no compression, onlyPlaintext, otherwise the adapter's defaults",
      "both on the same Redis; CPU is that of the server that has the sockets",
    ],
    tables: [
      {
        head: ["in flight", "server", "deliveries/s", "CPU s per million", "p50 ms", "p99 ms"],
        rows: WINDOWS.flatMap((window) =>
          [...contestants.keys()].map((name) => [
            `${window}`,
            name,
            ...(["rate", "cpu", "p50", "p99"] as const).map((what) => range(of(name, window, what))),
          ]),
        ),
      },
    ],
    bars: [
      {
        name: `${BURST} in flight (a burst), deliveries/s, Khala ÷ Socket.IO`,
        got: ratio(KHALA, SOCKETIO, "rate"),
        least: 3,
      },
      {
        name: `${BURST} in flight (a burst), deliveries per CPU second, Khala ÷ Socket.IO`,
        got: ratio(SOCKETIO, KHALA, "cpu"),
        least: 3,
      },
    ],
    otherLoad: otherLoad(),
  };
};
