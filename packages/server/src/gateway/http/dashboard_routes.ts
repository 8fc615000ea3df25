import type { FastifyReply, FastifyRequest } from "fastify";
import type { ServedFile } from "./dashboard_files.ts";
import type { Http } from "./http.ts";

/** The rooms of the page: each address answers the page itself, which looks at where it is. */
const ROOMS = ["/", "/sync", "/conversations", "/blackboard", "/operations"];

/** Its own files, its own server, and nothing else; styles may be set on elements, scripts only come from files. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const FOREVER = "public, max-age=31536000, immutable";

/** The dashboard: its page at the rooms' addresses, its assets under `/assets/`, and what lies beside the page. */
export function dashboardRoutes({ app }: Http, files: ReadonlyMap<string, ServedFile>): void {
  const page = files.get("index.html")!;
  for (const path of ROOMS)
    app.get(path, async (request, reply) => {
      reply.header("Content-Security-Policy", POLICY).header("Referrer-Policy", "no-referrer");
      return send(request, reply, page, "no-cache");
    });
  for (const [name, file] of files) {
    if (name === "index.html") continue;
    const cache = name.startsWith("assets/") ? FOREVER : "no-cache";
    app.get(`/${encodeURI(name)}`, async (request, reply) => send(request, reply, file, cache));
  }
}

function send(request: FastifyRequest, reply: FastifyReply, file: ServedFile, cache: string): FastifyReply {
  const { encoding, body } = chosen(file, request.headers["accept-encoding"]);
  // One for each encoding: their bytes differ.
  const etag = encoding ? file.etag.replace(/"$/, `-${encoding}"`) : file.etag;
  reply
    .header("ETag", etag)
    .header("Cache-Control", cache)
    .header("X-Content-Type-Options", "nosniff")
    .header("Vary", [reply.getHeader("Vary"), "Accept-Encoding"].flat().filter(Boolean).join(", "));
  if (matches(request.headers["if-none-match"], etag)) return reply.code(304).send();
  if (encoding) reply.header("Content-Encoding", encoding);
  return reply.type(file.type).send(body);
}

function chosen({ plain, br, gz }: ServedFile, accepts: string | undefined) {
  const accepted = new Set(
    (accepts ?? "")
      .split(",")
      .map((each) => each.trim().toLowerCase())
      .filter((each) => !/;\s*q=0(\.0*)?$/.test(each))
      .map((each) => each.split(";")[0]!.trim()),
  );
  if (br && accepted.has("br")) return { encoding: "br", body: br };
  if (gz && accepted.has("gzip")) return { encoding: "gzip", body: gz };
  return { encoding: undefined, body: plain };
}

function matches(header: string | undefined, etag: string): boolean {
  return (header ?? "").split(",").some((each) => each.trim().replace(/^W\//, "") === etag);
}
