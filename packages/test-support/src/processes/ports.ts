import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";

// Below those that the system gives to programs that listen on any port or connects: a port that a server of a test leaves
// while it is down is still free when it comes back. Each worker of the run has some of its own.
const FIRST = 11_000;
const PER_WORKER = 2_500;
const WORKERS = 4;
/** The distance to the port on which nodes of a Redis cluster speak with each other. */
const BUS = 10_000;
const given = new Set<number>();

/** This many free ports, with those 10,000 above free too, for servers of this worker's tests. */
export async function freePorts(count: number): Promise<number[]> {
  const worker = Number(process.env.VITEST_POOL_ID ?? 0) % WORKERS;
  const ports: number[] = [];
  while (ports.length < count) {
    const port = FIRST + worker * PER_WORKER + randomInt(PER_WORKER);
    if (given.has(port) || !(await isFree(port)) || !(await isFree(port + BUS))) continue;
    given.add(port);
    ports.push(port);
  }
  return ports;
}

/** One of them. */
export async function freePort(): Promise<number> {
  const [port] = await freePorts(1);
  return port!;
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  const heard = once(server, "listening").then(
    () => true,
    () => false,
  );
  server.listen(port, "127.0.0.1");
  if (!(await heard)) return false;
  server.close();
  await once(server, "close");
  return true;
}
