import { KhalaError } from "@khala/contracts";
import { type Clock, type FileKey, type FileStore, inPieces } from "@khala/server/files";
import { AwsClient } from "aws4fetch";

export interface S3Options {
  /** The bucket's address: `https://<endpoint>/<bucket>`, or `https://<bucket>.<endpoint>`. */
  readonly url: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly clock: Clock;
}

/** The least size of a part, other than the last, that S3 accepts. More of a file is never in memory. */
const PART_BYTES = 5 << 20;
const TIMEOUT_MS = 60_000;
/** A download takes as long as its reader. */
const READ_TIMEOUT_MS = 300_000;
const DELETED_AT_ONCE = 8;
const RETRIES = 3;

interface Request {
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array<ArrayBuffer> | string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
}

/** Opens the store of files in a bucket. The key of a file is `<org_id>/<file_id>`. */
export function openS3FileStore({ url, clock, region, ...keys }: S3Options): FileStore {
  const base = url.replace(/\/+$/, "");
  const client = new AwsClient({ ...keys, region, service: "s3", retries: RETRIES });

  async function request(
    method: string,
    { org, fileId }: FileKey,
    { query = {}, timeoutMs = TIMEOUT_MS, ...init }: Request = {},
  ): Promise<Response> {
    const search = new URLSearchParams(query).toString();
    const address = `${base}/${encodeURIComponent(org)}/${encodeURIComponent(fileId)}${search && `?${search}`}`;
    const late = new AbortController();
    const cancel = clock.after(timeoutMs, () => late.abort());
    try {
      return await client.fetch(address, { method, signal: late.signal, ...init });
    } catch (cause) {
      throw unavailable("cannot be reached", cause);
    } finally {
      // A response that is being read is bounded by its reader.
      cancel();
    }
  }

  async function send(method: string, key: FileKey, options: Request = {}): Promise<Response> {
    const response = await request(method, key, options);
    if (response.ok) return response;
    const text = await response.text();
    throw unavailable(`answered ${method} with ${response.status} ${tag(text, "Code") ?? ""}`);
  }

  async function putParts(
    key: FileKey,
    first: Uint8Array<ArrayBuffer>,
    rest: AsyncIterable<Uint8Array<ArrayBuffer>>,
  ): Promise<void> {
    const uploadId = tag(await (await send("POST", key, { query: { uploads: "" } })).text(), "UploadId");
    if (uploadId === undefined) throw unavailable("answered without an upload id");
    try {
      const tags: string[] = [];
      const put = async (body: Uint8Array<ArrayBuffer>) => {
        const query = { partNumber: String(tags.length + 1), uploadId };
        const response = await send("PUT", key, { query, body });
        tags.push(response.headers.get("etag") ?? "");
        await response.body?.cancel();
      };
      await put(first);
      for await (const piece of rest) await put(piece);
      const parts = tags.map(
        (etag, i) => `<Part><PartNumber>${i + 1}</PartNumber><ETag>${etag}</ETag></Part>`,
      );
      const body = `<CompleteMultipartUpload>${parts.join("")}</CompleteMultipartUpload>`;
      const headers = { "content-type": "application/xml" };
      const answer = await (await send("POST", key, { query: { uploadId }, body, headers })).text();
      // S3 may answer 200 before it knows whether it worked.
      if (answer.includes("<Error>")) throw unavailable(`answered with ${tag(answer, "Code")}`);
    } catch (error) {
      await request("DELETE", key, { query: { uploadId } }).then(
        (response) => response.body?.cancel(),
        () => undefined,
      );
      throw error;
    }
  }

  return {
    inBucket: true,

    async put(key, bytes) {
      const pieces = inPieces(bytes, PART_BYTES)[Symbol.asyncIterator]();
      const first = await pieces.next();
      const body = first.done ? Buffer.alloc(0) : first.value;
      // A file of one part needs no more than one request.
      if (body.length === PART_BYTES) return putParts(key, body, { [Symbol.asyncIterator]: () => pieces });
      await (await send("PUT", key, { body })).body?.cancel();
    },

    async *get(key, { start, end }) {
      if (end <= start) return;
      const headers = { range: `bytes=${start}-${end - 1}` };
      const response = await request("GET", key, { headers, timeoutMs: READ_TIMEOUT_MS });
      if (response.status === 404 || response.status === 416) {
        await response.body?.cancel();
        throw new KhalaError("not_found", `There is no file ${JSON.stringify(key.fileId)}.`);
      }
      if (response.status !== 206 || !response.body)
        throw unavailable(`answered GET with ${response.status}`, await response.text());
      let read = 0;
      for await (const piece of response.body) {
        read += piece.length;
        yield piece;
      }
      if (read !== end - start) throw unavailable("sent fewer bytes than it has announced");
    },

    async delete(keys) {
      for (let at = 0; at < keys.length; at += DELETED_AT_ONCE) {
        const some = keys.slice(at, at + DELETED_AT_ONCE);
        const answers = await Promise.all(some.map((key) => request("DELETE", key)));
        for (const answer of answers) {
          await answer.body?.cancel();
          if (!answer.ok && answer.status !== 404) throw unavailable(`answered DELETE with ${answer.status}`);
        }
      }
    },
  };
}

/** The text of an element in an answer of S3, which has no attributes and no nesting where we look. */
function tag(xml: string, name: string): string | undefined {
  return new RegExp(`<${name}>([^<]*)</${name}>`).exec(xml)?.[1];
}

function unavailable(what: string, cause?: unknown): KhalaError {
  return new KhalaError(
    "unavailable",
    `The bucket of files ${what.trim()}.`,
    { retry_after_ms: 1_000 },
    { cause },
  );
}
