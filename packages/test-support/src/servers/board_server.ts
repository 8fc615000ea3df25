import type { ClaimJson, CorrelationStateJson, DeadLetterListJson } from "@khala/contracts/blackboard/v1";
import { type AppDefinition, createKhala, type Khala, readConfig } from "@khala/server";
import type { MintRequest } from "../../../server/src/gateway/auth/issuer.ts";
import { eventually } from "../kit/eventually.ts";

/** The app of a test's server. */
export type BoardApp = Pick<AppDefinition, "agents" | "schemas" | "schedules">;

/** The JSON of an answer, and its status. */
export interface Answer<T> {
  readonly status: number;
  readonly body: T;
}

/** A server with a blackboard in this process. Disposing of it stops it. */
export interface BoardServer extends AsyncDisposable {
  readonly khala: Khala;
  readonly url: string;
  /** A token of org-1 that may read and write the board by default. */
  token(claims?: Partial<MintRequest>): Promise<string>;
  get<T>(path: string, token?: string): Promise<Answer<T>>;
  post<T>(path: string, body?: unknown, token?: string): Promise<Answer<T>>;
  /** Publishes one artifact, which must be accepted; resolves with its id. */
  publish(draft: object): Promise<string>;
  /** Claims one task, which must come. */
  claim(agent: string, token?: string): Promise<Required<ClaimJson>>;
  /** Waits until there are this many dead letters. */
  deadLetters(agent: string, count: number): Promise<NonNullable<DeadLetterListJson["dead_letters"]>>;
  /** Waits until a correlation has this state. */
  correlation(id: string, status: string): Promise<CorrelationStateJson>;
}

/** The scopes of a user of the board. */
export const BOARD_SCOPES = ["blackboard:read", "blackboard:write", "blackboard:work:*"];

/** Starts a server on a database that may be shared with others. */
export async function startBoard(
  databaseUrl: string,
  app: BoardApp,
  settings: Readonly<Record<string, string>> = {},
): Promise<BoardServer> {
  const config = readConfig({
    DATABASE_URL: databaseUrl,
    KHALA_PORT: "0",
    KHALA_LOG_LEVEL: "silent",
    // The key that all test servers share, so that a token of one is good on another.
    KHALA_AUTH_SECRETS: `test:${Buffer.alloc(32, 7).toString("base64")}`,
    KHALA_DATABASE_POOL: "6",
    KHALA_DRAIN_MS: "1000",
    KHALA_BOARD_POLL_MS: "50",
    ...settings,
  });
  const khala = await createKhala({ models: [], ...app }, { config, dev: true });
  const { url } = khala;
  const token = async (claims: Partial<MintRequest> = {}) => {
    const wish = { sub: "user-1", org_id: "org-1", scopes: BOARD_SCOPES, ...claims };
    return (await khala.auth.issuer!.mint(wish)).token;
  };

  async function call<T>(method: string, path: string, given?: string, body?: unknown): Promise<Answer<T>> {
    const response = await fetch(`${url}/blackboard/v1${path}`, {
      method,
      headers: {
        authorization: `Bearer ${given ?? (await token())}`,
        ...(body !== undefined && { "content-type": "application/json" }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, body: (text === "" ? null : JSON.parse(text)) as T };
  }

  const server: BoardServer = {
    khala,
    url,
    token,
    get: (path, given) => call("GET", path, given),
    post: (path, body, given) => call("POST", path, given, body),
    async publish(draft) {
      const { status, body } = await server.post<{ artifacts: [{ id: string }] }>("/artifacts", draft);
      if (status !== 201) throw new Error(`The artifact was refused: ${JSON.stringify(body)}`);
      return body.artifacts[0].id;
    },
    async claim(agent, given) {
      const ask = { worker: "test", wait_ms: 10_000 };
      const path = `/agents/${agent}/claim`;
      // A server that has just started may have to wait for its share of the partitions.
      return eventually(`a task of ${agent}`, async () => {
        const { body } = await server.post<{ claims?: Required<ClaimJson>[] }>(path, ask, given);
        return body.claims?.[0];
      });
    },
    deadLetters: (agent, count) =>
      eventually(`${count} dead letters of ${agent}`, async () => {
        const { body } = await server.get<DeadLetterListJson>(`/dead-letters/${agent}`);
        return (body.dead_letters?.length ?? 0) >= count && body.dead_letters!;
      }),
    correlation: (id, status) =>
      eventually(`${id} is ${status}`, async () => {
        const { body } = await server.get<CorrelationStateJson>(`/correlations/${id}`);
        return body.status === status && body;
      }),
    [Symbol.asyncDispose]: () => khala.stop(),
  };
  return server;
}
