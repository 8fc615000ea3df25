import { cutter, type Wire, type WireMessage } from "../processes/step_proxy.ts";

const BIND = "B".charCodeAt(0);
const QUERY = "Q".charCodeAt(0);
const SYNC = "S".charCodeAt(0);
const READY = "Z".charCodeAt(0);
const HEAD = 5;

/**
 * PostgreSQL's protocol, without TLS: the names of prepared statements that run, and the text of plain queries. What
 * comes before a Sync is answered, and committed, with it.
 */
export function postgresWire(): Wire {
  const sized = (rest: Buffer) => (rest.length < HEAD ? undefined : 1 + rest.readInt32BE(1));
  // The first message of a client has no type.
  const requests = cutter((rest, cut) => (cut > 0 || rest.length < 4 ? sized(rest) : rest.readInt32BE(0)));
  const answers = cutter(sized);
  let [asked, ready, isFirst] = [0, 0, true];

  function request(bytes: Buffer): WireMessage {
    const id = asked;
    const type = isFirst ? undefined : bytes[0];
    if (isFirst || type === SYNC || type === QUERY) asked++;
    isFirst = false;
    if (type === QUERY) return { bytes, id, name: textAt(bytes, HEAD) };
    if (type !== BIND) return { bytes, id };
    return { bytes, id, name: textAt(bytes, bytes.indexOf(0, HEAD) + 1) };
  }

  return {
    requests: (chunk) => requests(chunk).map(request),
    answers: (chunk) =>
      answers(chunk).map((bytes) => (bytes[0] === READY ? { bytes, id: ready++ } : { bytes })),
  };
}

function textAt(bytes: Buffer, start: number): string {
  return bytes.toString("utf8", start, bytes.indexOf(0, start));
}
