import { createClient, type KhalaClient } from "@khala/client";
import { KhalaProvider } from "@khala/client/react";
import { indexedDb } from "@khala/client/storage";
import { createContext, type ReactNode, use, useCallback, useEffect, useMemo, useState } from "react";
import { asFailure } from "./parts/asking.ts";
import { ASK_FOR_TOKEN, Failure, type FailureLike, Loading } from "./parts/states.tsx";
import { TokenDialog, TokenPage } from "./sign_in.tsx";
import { sessionWords } from "./strings/app.ts";

/** What the server says of itself to everybody. */
export interface About {
  readonly version: string;
  readonly dev: boolean;
  /** Whether it gives this page a token without being asked for a key. */
  readonly mints: boolean;
  readonly scopes: readonly string[];
  readonly engines: { readonly sync: string; readonly conversations: string; readonly blackboard: string };
  /** Where traces are looked at, with {trace_id} in the place of the id. */
  readonly traceUrl: string | undefined;
}

/** Who is signed in, and where. */
export interface Session {
  readonly about: About;
  /** Whether the person brought the token: then only they can bring another. */
  readonly isPasted: boolean;
  /** Opens the dialog for another token. */
  readonly changeToken: () => void;
}

const KEPT_AS = "khala.token";
/** Who the development token is made out to: the demo's data are theirs. */
const DEVELOPER = { sub: "dev", org_id: "demo" };
const SESSION = createContext<Session | undefined>(undefined);

/** The session; only inside of it. */
export function useSession(): Session {
  const session = use(SESSION);
  if (!session) throw new Error("useSession is used outside of <SignedIn>.");
  return session;
}

/** Shows its children to who has a token: in development everybody on this machine, else who pasted one. */
export function SignedIn({ children }: { readonly children: ReactNode }) {
  const [about, setAbout] = useState<About>();
  const [error, setError] = useState<FailureLike>();
  const [pasted, setPasted] = useState(() => window.sessionStorage.getItem(KEPT_AS) ?? undefined);
  const [isChanging, setChanging] = useState(false);

  const reach = useCallback(() => {
    setError(undefined);
    readAbout().then(setAbout, (failure: unknown) => setError(asFailure(failure)));
  }, []);
  useEffect(reach, [reach]);
  useEffect(() => {
    const open = () => setChanging(true);
    window.addEventListener(ASK_FOR_TOKEN, open);
    return () => window.removeEventListener(ASK_FOR_TOKEN, open);
  }, []);

  const source = useMemo(() => {
    if (pasted !== undefined) return pasted;
    return about?.mints ? () => mint(about.scopes) : undefined;
  }, [pasted, about]);
  const client = useClient(source);
  const isPasted = pasted !== undefined;
  const session = useMemo(
    () => about && { about, isPasted, changeToken: () => setChanging(true) },
    [about, isPasted],
  );

  const sign = (token: string | undefined) => {
    if (token === undefined) window.sessionStorage.removeItem(KEPT_AS);
    else window.sessionStorage.setItem(KEPT_AS, token);
    setPasted(token);
    setChanging(false);
  };

  if (error) return <Failure error={error} onRetry={reach} />;
  if (!about || !session) return <Loading label={sessionWords.reaching} />;
  if (source === undefined) return <TokenPage onSign={sign} />;
  if (!client) return null;
  return (
    <SESSION value={session}>
      <KhalaProvider client={client}>{children}</KhalaProvider>
      <TokenDialog
        open={isChanging}
        onClose={() => setChanging(false)}
        onSign={sign}
        onForget={isPasted ? () => sign(undefined) : undefined}
        mints={about.mints}
      />
    </SESSION>
  );
}

/** One client for as long as the token comes from the same place. */
function useClient(source: string | (() => Promise<string>) | undefined): KhalaClient | undefined {
  const [client, setClient] = useState<KhalaClient>();
  useEffect(() => {
    if (source === undefined) return;
    const opened = createClient({
      url: window.location.origin,
      token: source,
      storage: indexedDb(),
    });
    setClient(opened);
    return () => {
      setClient(undefined);
      void opened.close();
    };
  }, [source]);
  return client;
}

async function readAbout(): Promise<About> {
  const body = await ask("/ops/v1/about");
  const engines = body.engines as Partial<About["engines"]> | undefined;
  return {
    version: String(body.version ?? ""),
    dev: body.dev === true,
    mints: body.mints === true,
    scopes: Array.isArray(body.scopes) ? body.scopes.map(String) : [],
    engines: { sync: "postgres", conversations: "postgres", blackboard: "postgres", ...engines },
    traceUrl: typeof body.trace_url === "string" ? body.trace_url : undefined,
  };
}

async function mint(scopes: readonly string[]): Promise<string> {
  const body = await ask("/api/sync/token", { ...DEVELOPER, scopes });
  return String(body.token);
}

/** These two requests come before there is a token, so they are not the client's. */
async function ask(path: string, body?: unknown): Promise<Record<string, unknown>> {
  const response = await fetch(path, {
    signal: AbortSignal.timeout(10_000),
    ...(body !== undefined && {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    }),
  }).catch((cause: unknown) => {
    throw Object.assign(new Error(asFailure(cause).message), { code: "unavailable" });
  });
  const answer: unknown = await response.json().catch(() => undefined);
  const { error } = Object(answer) as { error?: { code?: string; message?: string } };
  if (response.ok && typeof answer === "object" && answer !== null) return answer as Record<string, unknown>;
  throw Object.assign(new Error(error?.message ?? `The server answered with ${response.status}.`), {
    code: error?.code ?? (response.status === 404 ? "not_found" : "unavailable"),
  });
}
