import { loadOptional } from "../../kit/optional_package.ts";
import type { Mirror, MirroredDocument, MirrorReader } from "./mirror.ts";

// The parts of convex 1.48.0 that are used here, typed by hand because the package is optional.
interface HttpClient {
  mutation(reference: object, args: object, options: { skipQueue: boolean }): Promise<unknown>;
  query(reference: object, args: object): Promise<unknown>;
}
interface ConvexBrowser {
  readonly ConvexHttpClient: new (
    url: string,
    options: { skipConvexDeploymentUrlCheck: boolean; logger: false; fetch: typeof fetch },
  ) => HttpClient;
}
interface ConvexServer {
  makeFunctionReference(name: string): object;
}
const BROWSER: string = "convex/browser";
const SERVER: string = "convex/server";

export interface ConvexMirrorOptions {
  /** The deployment, such as `https://small-mouse-123.convex.cloud`. */
  readonly url: string;
  /** The mutation that takes updates, such as "khala:applyUpdates". */
  readonly mutation: string;
  /** The query that lists versions, such as "khala:versions". */
  readonly query: string;
  /** Sent with every call as `secret`: the functions are public and must check it. */
  readonly secret?: string | undefined;
}

/**
 * A Convex deployment as mirror. Needs the `convex` package.
 *
 * The mutation is called with `{topic, epoch, updates: [{doc_key, doc_version, op, payload, payload_hash, org_id, audience,
 * watermark}], secret?}` and stores all or none; the query with
 * `{topic, after_org, after_key, limit, secret?}` and returns `[{org_id, doc_key, doc_version, payload_hash}]`. `org_id` and
 * `doc_key` together identify a document. Versions and watermarks are int64, a payload is its canonical JSON as text.
 */
export async function convexMirror(options: ConvexMirrorOptions): Promise<Mirror & MirrorReader> {
  const { ConvexHttpClient: Client, makeFunctionReference } = await loadConvex();
  const mutation = makeFunctionReference(options.mutation);
  const query = makeFunctionReference(options.query);
  const secret = options.secret === undefined ? {} : { secret: options.secret };

  // One client per call, because the signal is an option of the client.
  const client = (signal: AbortSignal): HttpClient =>
    new Client(options.url, {
      skipConvexDeploymentUrlCheck: true,
      logger: false,
      fetch: (input, init) => fetch(input, { ...init, signal }),
    });

  return {
    name: `convex ${options.url}`,

    async publish({ topic, epoch, updates }, signal) {
      const args = {
        topic,
        epoch,
        updates: updates.map((update) => ({
          doc_key: update.docKey,
          doc_version: update.docVersion,
          op: update.op,
          payload: update.payload,
          payload_hash: update.payloadHash,
          org_id: update.org,
          audience: update.audience && [...update.audience],
          watermark: update.watermark,
        })),
        ...secret,
      };
      await client(signal).mutation(mutation, args, { skipQueue: true });
    },

    async held(topic, after, limit, signal) {
      const page = { topic, after_org: after.org, after_key: after.docKey, limit, ...secret };
      const answer: unknown = await client(signal).query(query, page);
      if (!Array.isArray(answer))
        throw new Error(`The query ${options.query} must return a list. See convexMirror for its shape.`);
      return answer.map((row) => readHeld(row, options.query));
    },
  };
}

function readHeld(row: unknown, query: string): MirroredDocument {
  const { org_id: org, doc_key: docKey, doc_version: docVersion, payload_hash: hash } = Object(row);
  if (typeof org !== "string" || typeof docKey !== "string" || typeof docVersion !== "bigint") {
    const wanted = "an org_id (text), a doc_key (text) and a doc_version (int64)";
    throw new Error(`The query ${query} returned a row without ${wanted}.`);
  }
  return { org, docKey, docVersion, payloadHash: typeof hash === "string" ? hash : null };
}

function loadConvex(): Promise<ConvexBrowser & ConvexServer> {
  return loadOptional("convex", "KHALA_MIRROR=convex", async () => {
    const [{ ConvexHttpClient }, { makeFunctionReference }] = await Promise.all([
      import(BROWSER) as Promise<ConvexBrowser>,
      import(SERVER) as Promise<ConvexServer>,
    ]);
    return { ConvexHttpClient, makeFunctionReference };
  });
}
