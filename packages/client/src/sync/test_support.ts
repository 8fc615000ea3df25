import { FakeEnvironment } from "../connection/test_support.ts";
import type { Answer, Http, RequestOptions } from "../http.ts";
import type { LogEvent } from "../log.ts";
import { memory } from "../storage/memory.ts";
import type { Cursor, Storage, StoredDocument } from "../storage/storage.ts";
import type { SyncPlane } from "./plane_port.ts";
import type { TopicSink, TopicSource, Update } from "./source.ts";
import { openSync } from "./sync_plane.ts";

/** A position in the one history that these tests have. */
export function at(watermark: number, epoch = "e"): Cursor {
  return { epoch, watermark: String(watermark) };
}

/** A document as it is stored. */
export function stored(key: string, version: number, payload: unknown = { version }): StoredDocument {
  return { key, version: String(version), hash: `${key}@${version}`, payload };
}

/** An update of a document; no payload deletes it. */
export function update(key: string, version: number, payload: unknown = { version }): Update {
  const doc = { doc_key: key, doc_version: String(version) };
  return payload === null
    ? { ...doc, op: "delete" }
    : { ...doc, op: "upsert", payload, payload_hash: `${key}@${version}` };
}

/** An update that must be fetched. */
export function tooLarge(key: string, version: number, hash = `${key}@${version}`): Update {
  return {
    doc_key: key,
    doc_version: String(version),
    op: "upsert",
    payload_hash: hash,
    fetch_required: true,
  };
}

/** A source whose topics a test plays. */
class FakeSource implements TopicSource {
  readonly followed: { readonly topic: string; readonly sink: TopicSink; readonly signal: AbortSignal }[] =
    [];

  follow(topic: string, sink: TopicSink, signal: AbortSignal): void {
    this.followed.push({ topic, sink, signal });
  }

  /** The sink that gets a topic's changes now. */
  sink(topic = "t"): TopicSink {
    const last = this.followed.findLast((one) => one.topic === topic && !one.signal.aborted);
    if (!last) throw new Error(`Nobody follows ${topic}.`);
    return last.sink;
  }
}

/** A plane whose source, HTTP and time a test plays. */
export function testPlane({ storage = memory(), scope = "s" }: { storage?: Storage; scope?: string } = {}) {
  const place = new FakeEnvironment();
  const source = new FakeSource();
  const events: LogEvent[] = [];
  const asked: { path: string; options: RequestOptions; settle: PromiseWithResolvers<Answer> }[] = [];
  const http: Http = {
    request(_method, path, options = {}) {
      const settle = Promise.withResolvers<Answer>();
      asked.push({ path, options, settle });
      return settle.promise;
    },
  };
  const plane: SyncPlane = openSync({
    environment: place,
    http,
    storage,
    log: (event) => events.push(event),
  });
  plane.setScope(scope);
  plane.setSource(source);
  return { plane, place, source, storage, events, asked };
}

/** An answer of HTTP. */
export function answer(body: unknown, status = 200): Answer {
  return { status, headers: new Headers(), body };
}
