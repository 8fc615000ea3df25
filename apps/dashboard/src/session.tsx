import { createClient, type KhalaClient } from "@khala/client";
import { KhalaProvider } from "@khala/client/react";
import { indexedDb } from "@khala/client/storage";
import { liveQueries } from "@khala/client/tanstack-query";
import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import {
  createContext,
  type FormEvent,
  type ReactNode,
  use,
  useEffect,
  useId,
  useMemo,
  useState,
} from "react";
import { toErrorInfo, useFetch } from "./data/fetch.ts";
import { Button } from "./ui/controls/button.tsx";
import { Dialog } from "./ui/controls/dialog.tsx";
import { Icon } from "./ui/controls/icons.tsx";
import { CHANGE_TOKEN, Failure, Loading } from "./ui/feedback/notices.tsx";

/** What the server tells everybody about itself. */
export interface About {
  readonly version: string;
  readonly dev: boolean;
  /** Whether it gives this page a token without a key. */
  readonly mints: boolean;
  readonly scopes: readonly string[];
  /** The storage backend of each plane. */
  readonly backends: { readonly sync: string; readonly conversations: string; readonly blackboard: string };
  /** The tracing UI, with {trace_id} in place of the id. */
  readonly traceUrl: string | undefined;
}

export interface Session {
  readonly about: About;
  /** Whether the user pasted the token: then only they can replace it. */
  readonly isPasted: boolean;
  /** Opens the dialog for another token. */
  readonly changeToken: () => void;
  /** A token for a request outside of this page. */
  readonly newToken: () => Promise<string>;
  /** Queries whose documents stay current in the cache. */
  readonly live: Live;
}

type Live = ReturnType<typeof liveQueriesOf>;
const liveQueriesOf = (client: KhalaClient, queries: QueryClient) => liveQueries(client, queries);

const STORED_AS = "khala.token";
/** The subject of the development token: it owns the demo's data. */
const DEVELOPER = { sub: "dev", org_id: "demo" };
/** This browser, among the devices that have a conversation open. */
const DEVICE = `dashboard-${Math.random().toString(36).slice(2, 8)}`;
const SessionContext = createContext<Session | undefined>(undefined);

/** The session. Only inside <SignedIn>. */
export function useSession(): Session {
  const session = use(SessionContext);
  if (!session) throw new Error("useSession is used outside of <SignedIn>.");
  return session;
}

/** Shows its children with a token: in development the server gives one, otherwise the user pastes one. */
export function SignedIn({ children }: { readonly children: ReactNode }) {
  const { data: about, error, refetch } = useFetch(["about"], readAbout);
  const [pasted, setPasted] = useState(() => window.sessionStorage.getItem(STORED_AS) ?? undefined);
  const [isChanging, setChanging] = useState(false);
  useEffect(() => {
    const open = () => setChanging(true);
    window.addEventListener(CHANGE_TOKEN, open);
    return () => window.removeEventListener(CHANGE_TOKEN, open);
  }, []);

  const token = useMemo(() => {
    if (pasted !== undefined) return pasted;
    return about?.mints ? () => mintToken(about.scopes) : undefined;
  }, [pasted, about]);
  const opened = useClient(token);
  const isPasted = pasted !== undefined;
  const session = useMemo(
    () =>
      about &&
      opened &&
      token !== undefined && {
        about,
        isPasted,
        changeToken: () => setChanging(true),
        newToken: async () => (typeof token === "string" ? token : token()),
        live: opened.live,
      },
    [about, isPasted, opened, token],
  );

  const signIn = (next: string | undefined) => {
    if (next === undefined) window.sessionStorage.removeItem(STORED_AS);
    else window.sessionStorage.setItem(STORED_AS, next);
    setPasted(next);
    setChanging(false);
  };

  if (!about) return error ? <Failure error={error} onRetry={refetch} /> : <Loading label="Connecting…" />;
  if (token === undefined) return <TokenPage onSignIn={signIn} />;
  if (!opened || !session) return null;
  return (
    <SessionContext value={session}>
      <KhalaProvider client={opened.client}>{children}</KhalaProvider>
      <Dialog
        open={isChanging}
        onClose={() => setChanging(false)}
        title="Use another token"
        about="The scopes of the token decide what you can see."
      >
        <TokenForm onSignIn={signIn} />
        {isPasted && (
          <p className="sign-in-forget">
            <Button kind="bare" onClick={() => signIn(undefined)}>
              {about.mints ? "Use the development token" : "Sign out"}
            </Button>
          </p>
        )}
      </Dialog>
    </SessionContext>
  );
}

interface Opened {
  readonly client: KhalaClient;
  readonly live: Live;
}

/** One client per token source. What was fetched with another token is dropped. */
function useClient(token: string | (() => Promise<string>) | undefined): Opened | undefined {
  const [opened, setOpened] = useState<Opened>();
  const queries = useQueryClient();
  useEffect(() => {
    if (token === undefined) return;
    const client = createClient({ url: window.location.origin, token, storage: indexedDb(), device: DEVICE });
    const live = liveQueriesOf(client, queries);
    setOpened({ client, live });
    return () => {
      setOpened(undefined);
      live.stop();
      queries.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== "about" });
      void client.close();
    };
  }, [token, queries]);
  return opened;
}

async function readAbout(): Promise<About> {
  const body = await request("/ops/v1/about");
  const backends = body.backends as Partial<About["backends"]> | undefined;
  return {
    version: String(body.version ?? ""),
    dev: body.dev === true,
    mints: body.mints === true,
    scopes: Array.isArray(body.scopes) ? body.scopes.map(String) : [],
    backends: { sync: "postgres", conversations: "postgres", blackboard: "postgres", ...backends },
    traceUrl: typeof body.trace_url === "string" ? body.trace_url : undefined,
  };
}

async function mintToken(scopes: readonly string[]): Promise<string> {
  const body = await request("/api/sync/token", { ...DEVELOPER, scopes });
  return String(body.token);
}

/** For the two requests that come before there is a token, so that the client cannot send them. */
async function request(path: string, body?: unknown): Promise<Record<string, unknown>> {
  const response = await fetch(path, {
    signal: AbortSignal.timeout(10_000),
    ...(body !== undefined && {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    }),
  }).catch((cause: unknown) => {
    throw Object.assign(new Error(toErrorInfo(cause).message), { code: "unavailable" });
  });
  const answer: unknown = await response.json().catch(() => undefined);
  const { error } = Object(answer) as { error?: { code?: string; message?: string } };
  if (response.ok && typeof answer === "object" && answer !== null) return answer as Record<string, unknown>;
  throw Object.assign(new Error(error?.message ?? `The server responded with status ${response.status}.`), {
    code: error?.code ?? (response.status === 404 ? "not_found" : "unavailable"),
  });
}

interface SignInProps {
  readonly onSignIn: (token: string) => void;
}

function TokenPage({ onSignIn }: SignInProps) {
  return (
    <main className="sign-in">
      <div className="card sign-in-card">
        <Icon name="key" size={22} />
        <h1>Sign in with a token</h1>
        <p className="quiet">
          This server requires a token. The dashboard needs the scope ops, and the scopes of the data to show.
        </p>
        <TokenForm onSignIn={onSignIn} />
      </div>
    </main>
  );
}

function TokenForm({ onSignIn }: SignInProps) {
  const [token, setToken] = useState("");
  const [isWrong, setWrong] = useState(false);
  const id = useId();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const text = token.trim();
    const isToken = /^[\w-]+\.[\w-]+\.[\w-]+$/.test(text);
    setWrong(!isToken);
    if (isToken) onSignIn(text);
  };
  return (
    <form className="sign-in-form" onSubmit={submit}>
      <p className="quiet">Create one on the server:</p>
      <code className="notice-code">
        khala token --scope ops blackboard:read blackboard:write chat runtime.run_summaries
      </code>
      <label htmlFor={id}>Token</label>
      <textarea
        id={id}
        className="field mono"
        rows={4}
        spellCheck={false}
        autoComplete="off"
        placeholder="eyJ…"
        value={token}
        aria-invalid={isWrong || undefined}
        aria-describedby={`${id}-note`}
        onChange={(event) => setToken(event.target.value)}
      />
      <p id={`${id}-note`} className={isWrong ? "failed" : "quiet"} role={isWrong ? "alert" : undefined}>
        {isWrong
          ? "This is not a token: a JWT has three parts separated by dots."
          : "The token is stored in this tab until you close it."}
      </p>
      <Button kind="primary" type="submit" disabled={token.trim() === ""}>
        Sign in
      </Button>
    </form>
  );
}
