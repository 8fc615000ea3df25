import { createHash } from "node:crypto";
import { readdir, readFile, stat } from "node:fs/promises";
import { join, relative, sep } from "node:path";
import type { FastifyReply, FastifyRequest } from "fastify";
import { isKnown } from "../etag.ts";
import type { Http } from "../http.ts";

/** The client-side routes of the dashboard: each answers with the page. */
const PAGES = ["/", "/sync", "/conversations", "/blackboard", "/operations", "/docs"];

/** Files and connections of this server only; inline styles are allowed, inline scripts are not. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  // Files of conversations are read with the token, and shown as blobs.
  "img-src 'self' data: blob:",
  "font-src 'self'",
  "connect-src 'self'",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const FOREVER = "public, max-age=31536000, immutable";

/** The dashboard: its page, its assets under `/assets/`, and the files beside the page. */
export function dashboardRoutes(http: Http, files: ReadonlyMap<string, ServedFile>): void {
  const page = files.get("index.html")!;
  const sendPage = (request: FastifyRequest, reply: FastifyReply) => {
    reply.header("Content-Security-Policy", POLICY).header("Referrer-Policy", "no-referrer");
    return send(request, reply, page, "no-cache");
  };
  for (const path of PAGES) http.open("GET", path, async (request, reply) => sendPage(request, reply));
  // A page that reports the missing page, and leads back.
  http.fallback(sendPage);
  for (const [name, file] of files) {
    if (name === "index.html") continue;
    const cache = name.startsWith("assets/") ? FOREVER : "no-cache";
    http.open("GET", `/${encodeURI(name)}`, async (request, reply) => send(request, reply, file, cache));
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
  if (isKnown(request, etag)) return reply.code(304).send();
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

/** A file that is served, with what is known of it. */
export interface ServedFile {
  readonly type: string;
  readonly etag: string;
  readonly plain: Buffer;
  /** The same, compressed when it was built. */
  readonly br?: Buffer;
  readonly gz?: Buffer;
}

const TYPES: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  json: "application/json",
  map: "application/json",
  svg: "image/svg+xml",
  png: "image/png",
  ico: "image/x-icon",
  webp: "image/webp",
  woff2: "font/woff2",
  txt: "text/plain; charset=utf-8",
};
/** Generous limits for a built dashboard: a larger folder is some other folder. */
const MAX_FILES = 2_000;
const MAX_BYTES = 64 << 20;
const MAX_TRIES = 3;

/**
 * Reads a folder of built files into memory: requests are answered by name, so that no path of a request ever reaches the
 * disk. Undefined when there is no index.html in it.
 */
export async function readFiles(directory: string): Promise<ReadonlyMap<string, ServedFile> | undefined> {
  for (let tries = 1; ; tries++) {
    const index = await stat(join(directory, "index.html")).catch(() => undefined);
    if (!index?.isFile()) return undefined;
    try {
      return await readAll(directory);
    } catch (error) {
      // A build has replaced the folder since.
      if ((error as NodeJS.ErrnoException).code !== "ENOENT" || tries === MAX_TRIES) throw error;
    }
  }
}

async function readAll(directory: string): Promise<ReadonlyMap<string, ServedFile>> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const paths = entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name));
  if (paths.length > MAX_FILES) throw tooLarge(directory);
  const contents = new Map<string, Buffer>();
  let bytes = 0;
  for (const path of paths) {
    const content = await readFile(path);
    bytes += content.length;
    if (bytes > MAX_BYTES) throw tooLarge(directory);
    contents.set(relative(directory, path).split(sep).join("/"), content);
  }
  const files = new Map<string, ServedFile>();
  for (const [name, plain] of contents) {
    const type = TYPES[name.slice(name.lastIndexOf(".") + 1)];
    if (!type) continue;
    const br = contents.get(`${name}.br`);
    const gz = contents.get(`${name}.gz`);
    const etag = `"${createHash("sha256").update(plain).digest("base64url").slice(0, 22)}"`;
    files.set(name, { type, etag, plain, ...(br && { br }), ...(gz && { gz }) });
  }
  return files;
}

function tooLarge(directory: string): Error {
  return new Error(`${directory} has too much in it for a dashboard. Name the folder that its build made.`);
}
