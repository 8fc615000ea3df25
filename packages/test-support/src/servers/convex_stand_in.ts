import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdir, rename, symlink } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { ensureInstalled } from "../../../../scripts/install.ts";
import { ROOT } from "../../../../scripts/run.ts";

/** A document as the functions of a deployment would store it. */
export interface StandInDocument {
  readonly epoch: string;
  readonly doc_key: string;
  readonly doc_version: bigint;
  readonly op: string;
  readonly payload: string | null;
  readonly payload_hash: string | null;
  readonly org_id: string;
  readonly audience: readonly string[] | null;
  readonly watermark: bigint;
}

/** A call as it came over the wire. */
export interface StandInCall {
  readonly endpoint: string;
  readonly path: string;
  readonly format: string;
  readonly client: string | undefined;
  readonly args: Record<string, unknown>;
}

/** An HTTP server that understands the npm package `convex`, with the two functions that the mirror calls. */
export interface ConvexStandIn extends AsyncDisposable {
  readonly url: string;
  readonly calls: readonly StandInCall[];
  /** Its documents of a topic, by org and key with a space between, deleted ones included. */
  topic(name: string): Map<string, StandInDocument>;
  /** Its answer to calls from now on: work, fail as a function that throws, answer 503, or never answer. */
  behave(as: "works" | "throws" | "unavailable" | "hangs"): void;
}

/** Starts it on a free port, and gives the server the npm package that calls it. */
export async function startConvexStandIn({ secret }: { secret?: string } = {}): Promise<ConvexStandIn> {
  await linkConvex();
  const topics = new Map<string, Map<string, StandInDocument>>();
  const calls: StandInCall[] = [];
  let behaviour: Parameters<ConvexStandIn["behave"]>[0] = "works";
  const topic = (name: string) => {
    const known = topics.get(name) ?? new Map<string, StandInDocument>();
    topics.set(name, known);
    return known;
  };

  const functions: Record<string, (args: Record<string, unknown>) => unknown> = {
    "/api/mutation khala:applyUpdates"({ topic: name, epoch, updates }) {
      const documents = topic(name as string);
      for (const update of updates as Omit<StandInDocument, "epoch">[]) {
        const id = `${update.org_id} ${update.doc_key}`;
        const held = documents.get(id);
        const newer = !held || held.epoch < (epoch as string) || held.doc_version < update.doc_version;
        if (newer && (!held || held.epoch <= (epoch as string)))
          documents.set(id, { ...update, epoch: epoch as string });
      }
      return null;
    },
    "/api/query khala:versions"({ topic: name, after_org, after_key, limit }) {
      const after = { org_id: after_org as string, doc_key: after_key as string };
      return [...topic(name as string).values()]
        .filter((document) => document.op === "upsert" && compareNames(document, after) > 0)
        .sort(compareNames)
        .slice(0, limit as number)
        .map(({ org_id, doc_key, doc_version, payload_hash }) => ({
          org_id,
          doc_key,
          doc_version,
          payload_hash,
        }));
    },
  };

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = JSON.parse(Buffer.concat(await request.toArray()).toString());
    const args = decode(body.args[0]) as Record<string, unknown>;
    const client = request.headers["convex-client"] as string | undefined;
    calls.push({ endpoint: request.url!, path: body.path, format: body.format, client, args });
    if (behaviour === "hangs") return;
    if (behaviour === "unavailable") {
      response.writeHead(503).end("The deployment is paused.");
      return;
    }
    const call = functions[`${request.url} ${body.path}`];
    let status = 200;
    let answer: object;
    if (behaviour === "throws" || !call || (secret !== undefined && args.secret !== secret)) {
      status = 560;
      answer = { status: "error", errorMessage: "Uncaught Error: no", logLines: [] };
    } else {
      answer = { status: "success", value: encode(call(args)), logLines: [] };
    }
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(answer));
  }

  const server = createServer((request, response) => {
    answer(request, response).catch((error: Error) => response.writeHead(400).end(error.message));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    topic,
    behave(as) {
      behaviour = as;
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

/** Links the package from e2e/peers to where the server's source looks for it. The link replaces an older one as a whole. */
async function linkConvex(): Promise<void> {
  await ensureInstalled("e2e/peers");
  const modules = join(ROOT, "packages/server/node_modules");
  await mkdir(modules, { recursive: true });
  const fresh = join(modules, `.convex-${randomUUID()}`);
  await symlink(join(ROOT, "e2e/peers/node_modules/convex"), fresh, "dir");
  await rename(fresh, join(modules, "convex"));
}

type Name = Pick<StandInDocument, "org_id" | "doc_key">;

const compare = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b));
const compareNames = (a: Name, b: Name) => compare(a.org_id, b.org_id) || compare(a.doc_key, b.doc_key);

/** Convex writes an int64 as its eight bytes, lowest first, in base64. */
function decode(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(decode);
  if (typeof value !== "object" || value === null) return value;
  const { $integer } = value as { $integer?: string };
  if ($integer !== undefined) return Buffer.from($integer, "base64").readBigInt64LE();
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, decode(member)]));
}

function encode(value: unknown): unknown {
  if (typeof value === "bigint") {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(value);
    return { $integer: bytes.toString("base64") };
  }
  if (Array.isArray(value)) return value.map(encode);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, encode(member)]));
}
