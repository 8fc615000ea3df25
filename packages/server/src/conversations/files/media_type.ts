/** The number of leading bytes that determine a file's type. */
export const SNIFFED_BYTES = 4_096;

const BINARY = "application/octet-stream";
const TEXT = "text/plain";

interface Signature {
  readonly type: string;
  readonly matches: (head: Buffer) => boolean;
  /** Declared types that the same signature has, such as the documents that are zip files. */
  readonly also?: RegExp;
}

const at = (offset: number, bytes: string) => (head: Buffer) =>
  head.length >= offset + bytes.length && head.toString("latin1", offset, offset + bytes.length) === bytes;
const all =
  (...checks: readonly ((head: Buffer) => boolean)[]) =>
  (head: Buffer) =>
    checks.every((check) => check(head));
const brand = (names: RegExp) => (head: Buffer) =>
  at(4, "ftyp")(head) && names.test(head.toString("latin1", 8, 12));

const SIGNATURES: readonly Signature[] = [
  { type: "image/png", matches: at(0, "\x89PNG\r\n\x1a\n"), also: /^image\/apng$/ },
  { type: "image/jpeg", matches: at(0, "\xff\xd8\xff") },
  { type: "image/gif", matches: at(0, "GIF8") },
  { type: "image/webp", matches: all(at(0, "RIFF"), at(8, "WEBP")) },
  { type: "image/bmp", matches: all(at(0, "BM"), at(6, "\0\0\0\0")) },
  { type: "image/tiff", matches: (head) => at(0, "II*\0")(head) || at(0, "MM\0*")(head) },
  { type: "image/avif", matches: brand(/^avi[fs]$/) },
  { type: "image/heic", matches: brand(/^(heic|heix|mif1|msf1)$/), also: /^image\/heif$/ },
  { type: "audio/mp4", matches: brand(/^M4[AB] $/), also: /^audio\/x-m4a$/ },
  { type: "video/quicktime", matches: brand(/^qt {2}$/) },
  { type: "video/mp4", matches: brand(/^/), also: /^audio\/(mp4|x-m4a)$|^video\/(3gpp|x-m4v)$/ },
  {
    type: "video/webm",
    matches: at(0, "\x1a\x45\xdf\xa3"),
    also: /^audio\/webm$|^(video|audio)\/x-matroska$/,
  },
  { type: "audio/mpeg", matches: (head) => at(0, "ID3")(head) || (head[0] === 0xff && isMpegAudio(head)) },
  { type: "audio/wav", matches: all(at(0, "RIFF"), at(8, "WAVE")), also: /^audio\/(x-wav|wave)$/ },
  { type: "audio/ogg", matches: at(0, "OggS"), also: /^(video|application)\/ogg$|^audio\/opus$/ },
  { type: "audio/flac", matches: at(0, "fLaC"), also: /^audio\/x-flac$/ },
  { type: "application/pdf", matches: at(0, "%PDF-") },
  {
    type: "application/zip",
    matches: at(0, "PK\x03\x04"),
    also: /^application\/(vnd\.(openxmlformats-|oasis\.|ms-|android\.)[\w.+-]+|epub\+zip|java-archive|x-zip-compressed)$/,
  },
  { type: "application/gzip", matches: at(0, "\x1f\x8b"), also: /^application\/x-(gzip|tgz)$/ },
];

function isMpegAudio(head: Buffer): boolean {
  const second = head[1] ?? 0;
  // The sync bits, and a layer that exists. `ff fe` is the byte order mark of a text in UTF-16.
  return (second & 0xe0) === 0xe0 && (second & 0x06) !== 0 && second !== 0xfe;
}

/** Types that bytes without their signature cannot have. */
const SIGNED = new Set(SIGNATURES.map(({ type }) => type));
const TEXTUAL =
  /^text\/|^application\/(json|xml|javascript|x-ndjson|yaml|sql|toml|x-sh)$|[+](json|xml|yaml)$/;

/**
 * The type of a file, from its first bytes. The declared type only refines it: a signature wins over another declared type,
 * and a declared type that needs a signature is dropped without it.
 */
export function mediaType(head: Buffer, declared: string | undefined): string {
  const claimed = essence(declared);
  const signature = SIGNATURES.find(({ matches }) => matches(head));
  if (signature) return claimed && signature.also?.test(claimed) ? claimed : signature.type;
  const text = isText(head);
  if (!claimed || SIGNED.has(claimed) || (!text && TEXTUAL.test(claimed))) return text ? TEXT : BINARY;
  return claimed;
}

/** `type/subtype` in lower case, without parameters; undefined for invalid and generic types. */
function essence(declared: string | undefined): string | undefined {
  const type = (declared ?? "").split(";", 1)[0]!.trim().toLowerCase();
  return /^[a-z0-9][\w.+-]{0,60}\/[a-z0-9][\w.+-]{0,100}$/.test(type) && type !== BINARY ? type : undefined;
}

/** Whether the bytes are UTF-8 without control characters. The last character may be cut. */
function isText(head: Buffer): boolean {
  let end = head.length;
  // A character has at most four bytes.
  for (let back = 1; back <= Math.min(3, end); back++) {
    const byte = head[head.length - back]!;
    if (byte >= 0xc0) {
      end = head.length - back;
      break;
    }
    if (byte < 0x80) break;
  }
  const text = head.subarray(0, end);
  return (
    Buffer.compare(Buffer.from(text.toString("utf8")), text) === 0 &&
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what texts do not have.
    !/[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]/.test(text.toString("latin1"))
  );
}

const INLINE =
  /^(image\/(png|apng|jpeg|gif|webp|bmp|avif|heic|heif|tiff)|audio\/[\w.+-]+|video\/[\w.+-]+|application\/pdf|text\/plain)$/;

/** Whether a browser may show the file. Everything else is downloaded: HTML and SVG can contain scripts. */
export function isInline(type: string): boolean {
  return INLINE.test(type);
}
