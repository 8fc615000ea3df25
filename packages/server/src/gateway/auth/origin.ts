import type { FastifyRequest } from "fastify";

/** Pages of this machine, on any port, such as those of a bundler's development server. */
export const LOOPBACK_ORIGINS: readonly string[] = ["http", "https"].flatMap((scheme) =>
  ["localhost", "127.0.0.1", "[::1]"].map((host) => `${scheme}://${host}:*`),
);

/**
 * Whether a browser page of this origin may connect. `allow` holds exact origins, patterns such as `https://*.example.com`
 * (any subdomain, not the domain itself) or `http://localhost:*` (any port), or `*`. Pages of the server's own host are allowed, and so are programs, which
 * send no Origin.
 */
export function originAllowed(
  origin: string | undefined,
  allow: readonly string[],
  self: string | undefined,
): boolean {
  if (origin === undefined) return true;
  if (allow.includes("*")) return true;
  const url = parseOrigin(origin);
  if (!url) return false;
  return sameHost(url, self) || allow.some((entry) => matches(url.origin, entry));
}

/**
 * Whether a Host header names this machine. A page can make its own name resolve to 127.0.0.1, so a peer address of
 * loopback does not prove that the request came from a local page; the Host header does.
 */
export function loopbackHost(host: string | undefined): boolean {
  const name = host === undefined ? undefined : URL.parse(`http://${host}`)?.hostname;
  if (name === undefined) return false;
  return (
    name === "localhost" || name.endsWith(".localhost") || name === "[::1]" || /^127(\.\d+){3}$/.test(name)
  );
}

function sameHost(origin: URL, self: string | undefined): boolean {
  // The page's scheme is used for ours, which a proxy may have terminated: it only decides which port is the default one.
  return self !== undefined && URL.parse(`${origin.protocol}//${self}`)?.host === origin.host;
}

function matches(origin: string, entry: string): boolean {
  const pattern = entry.toLowerCase().replace(/\/$/, "");
  if (pattern.endsWith(":*")) return origin.replace(/:\d+$/, "") === pattern.slice(0, -2);
  const star = pattern.indexOf("://*.");
  if (star < 0) return URL.parse(pattern)?.origin === origin;
  const start = pattern.slice(0, star + 3);
  const end = pattern.slice(star + 4);
  if (!origin.startsWith(start) || !origin.endsWith(end)) return false;
  return /^[a-z0-9_-]+(\.[a-z0-9_-]+)*$/.test(origin.slice(start.length, -end.length));
}

// Only what a browser would send: "null", a path, credentials or another scheme is no origin of a page.
function parseOrigin(text: string): URL | undefined {
  const url = URL.parse(text);
  if (!url || (url.protocol !== "http:" && url.protocol !== "https:")) return undefined;
  return url.origin === text.toLowerCase() ? url : undefined;
}

/** Headers by which a proxy marks a forwarded request. */
const PROXY_HEADER = /^(x-forwarded-.*|x-real-ip|forwarded|via)$/;

/**
 * Whether a development server mints a token without a key: for programs of this machine, and for its own page. KHALA_ORIGINS has no
 * say here, since a token may be good for everything.
 */
export function mayMint({ ip, headers }: Pick<FastifyRequest, "ip" | "headers">): boolean {
  const { origin, host } = headers;
  const address = ip.replace(/^::ffff:/, "");
  const fromHere = address === "::1" || address.startsWith("127.");
  // Behind a proxy on this machine everybody seems to be here.
  const passedOn = Object.keys(headers).some((name) => PROXY_HEADER.test(name));
  // The host is checked too, or a foreign page could reach us through a name that it points at this machine.
  return fromHere && !passedOn && loopbackHost(host) && originAllowed(origin, [], host);
}
