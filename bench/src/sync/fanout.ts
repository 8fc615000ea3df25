import { runSummaries } from "@khala/server";
import { cpuSeconds, watchOtherLoad } from "../kit/proc.ts";
import { startProgram } from "../kit/program.ts";
import { type Bar, range } from "../kit/report.ts";
import { type Spread, spread } from "../kit/stats.ts";
import { type PartRunner, program } from "./bench.ts";
import { startCentrifugo } from "./centrifugo.ts";
import type { Kind } from "./clients.ts";
import type { FanoutLoad, FanoutResult } from "./programs/fanout_load.ts";
import type { GatewayProgram } from "./programs/gateway.ts";
import type { SocketioServer } from "./programs/socketio_server.ts";
import type { WsServer } from "./programs/ws_server.ts";
import { mintTokens } from "./tokens.ts";

const SOCKETS = 1_000;
const WINDOWS = [1, 16, 64, 256] as const;
const TITLES = new Map<Kind, string>([
  ["khala", "Khala, committed and journaled"],
  ["ws", "bare ws, the same frames"],
  ["centrifugo", "Centrifugo 6, memory engine"],
  ["socketio", "Socket.IO 4"],
]);

interface Contestant {
  readonly serverPid: number;
  run(window: number, ms: number): Promise<FanoutResult>;
}

interface Sample {
  readonly rate: number;
  readonly cpu: number;
  readonly p50: number;
  readonly p99: number;
  readonly perFrame: number;
}

/** (b) One topic, 1,000 sockets. */
export const fanout: PartRunner = async ({ postgres, centrifugo, rounds, quick }) => {
  await using stack = new AsyncDisposableStack();
  const otherLoad = watchOtherLoad();
  const load = () => stack.use(startProgram<FanoutLoad>(program("fanout_load")));
  const contestants = new Map<Kind, Contestant>();

  const url = await postgres.create("khala");
  const gateway = stack.use(startProgram<GatewayProgram>(program("gateway")));
  const { port } = await gateway.call("open", { url });
  const ours = load();
  const tokens = await mintTokens(SOCKETS);
  const { control } = await gateway.call("broadcast", undefined);
  const { topic } = runSummaries;
  await ours.call("open", { kind: "khala", port, sockets: SOCKETS, tokens, topic, control });
  let recorded: FanoutResult | undefined;
  contestants.set("khala", {
    serverPid: gateway.pid,
    async run(window, ms) {
      recorded = await ours.call("run", { window, ms });
      return recorded;
    },
  });

  const bare = stack.use(startProgram<WsServer>(program("ws_server")));
  const bareLoad = load();
  await bareLoad.call("open", { kind: "ws", sockets: SOCKETS, ...(await bare.call("open", undefined)) });
  contestants.set("ws", {
    serverPid: bare.pid,
    async run(window, ms) {
      const { frames, sizes } = recorded!;
      await bare.call("frames", { ready: frames });
      await bareLoad.call("expect", { sizes });
      return bareLoad.call("run", { window, ms });
    },
  });

  if (centrifugo) {
    const server = stack.use(await startCentrifugo({ type: "memory" }));
    const clients = load();
    await clients.call("open", { kind: "centrifugo", port: server.port, sockets: SOCKETS });
    contestants.set("centrifugo", {
      serverPid: server.pid,
      run: (window, ms) => clients.call("run", { window, ms }),
    });
  }

  const io = stack.use(startProgram<SocketioServer>(program("socketio_server")));
  const ioLoad = load();
  await ioLoad.call("open", { kind: "socketio", sockets: SOCKETS, ...(await io.call("open", undefined)) });
  contestants.set("socketio", { serverPid: io.pid, run: (window, ms) => ioLoad.call("run", { window, ms }) });

  const ms = quick ? 500 : 1_200;
  const samples = new Map<string, Sample[]>();
  for (let round = -1; round < rounds; round++) {
    for (const window of WINDOWS) {
      for (const [kind, contestant] of contestants) {
        const before = cpuSeconds(contestant.serverPid);
        const result = await contestant.run(window, round < 0 ? ms / 3 : ms);
        if (round < 0) continue;
        const sample = {
          rate: result.deliveries / result.seconds,
          cpu: ((cpuSeconds(contestant.serverPid) - before) / result.deliveries) * 1e6,
          p50: result.p50,
          p99: result.p99,
          perFrame: result.updatesPerFrame,
        };
        const key = `${kind} ${window}`;
        samples.set(key, [...(samples.get(key) ?? []), sample]);
      }
    }
  }

  const of = (kind: Kind, window: number, what: keyof Sample): Spread =>
    spread((samples.get(`${kind} ${window}`) ?? []).map((sample) => sample[what]));
  const rate = (kind: Kind, window: number) => of(kind, window, "rate").median;
  const cpu = (kind: Kind, window: number) => of(kind, window, "cpu").median;
  const bars: Bar[] = [];
  for (const window of WINDOWS) {
    const at = `${window} in flight`;
    bars.push({
      name: `${at}, deliveries/s, Khala ÷ bare ws`,
      got: rate("khala", window) / rate("ws", window),
      least: 0.7,
    });
    bars.push({
      name: `${at}, deliveries per CPU second, Khala ÷ bare ws`,
      got: cpu("ws", window) / cpu("khala", window),
      least: 0.7,
    });
    if (!centrifugo) continue;
    bars.push({
      name: `${at}, deliveries/s, Khala ÷ Centrifugo`,
      got: rate("khala", window) / rate("centrifugo", window),
      least: 1,
    });
    bars.push({
      name: `${at}, deliveries per CPU second, Khala ÷ Centrifugo`,
      got: cpu("centrifugo", window) / cpu("khala", window),
      least: 1,
    });
  }
  bars.push({
    name: "256 in flight (a burst), deliveries/s, Khala ÷ Socket.IO",
    got: rate("khala", 256) / rate("socketio", 256),
    least: 5,
  });
  const row = (kind: Kind, window: number) => [
    `${window}`,
    TITLES.get(kind)!,
    range(of(kind, window, "rate")),
    range(of(kind, window, "cpu")),
    range(of(kind, window, "p50")),
    range(of(kind, window, "p99")),
    of(kind, window, "perFrame").median.toFixed(1),
  ];
  return {
    title: "(b) Fan-out to 1,000 sockets on one topic",
    how: [
      "an update is in flight from the call that publishes it until all 1,000 sockets have it; latency is per delivery, from that call, on every 50th socket",
      "of each, one server takes the updates from the load generator and sends them to the sockets, and its CPU is counted for both",
      "Khala: sockets of 1,000 different people; written, committed to PostgreSQL with its journal, and read from there",
      "bare ws: no protocol, no database; sends the very frames that Khala sent in the run before, ready-made, to every socket",
      "Centrifugo: memory engine (nothing durable), history 100, recovery; Socket.IO: WebSocket alone, no compression, nothing durable",
    ],
    tables: [
      {
        head: [
          "in flight",
          "server",
          "deliveries/s",
          "CPU s per million",
          "p50 ms",
          "p99 ms",
          "updates per frame",
        ],
        rows: WINDOWS.flatMap((window) => [...contestants.keys()].map((kind) => row(kind, window))),
      },
    ],
    bars,
    otherLoad: otherLoad(),
  };
};
