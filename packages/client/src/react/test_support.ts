import { parseHTML } from "linkedom";
import { openApprovals } from "../board/approvals.ts";
import { openBoard } from "../board/board.ts";
import type { KhalaClient } from "../client.ts";
import { openConversations } from "../conversation/conversations.ts";
import { socketConversationSource } from "../conversation/socket_source.ts";
import { FakeConnection, FakeEnvironment, FakeHttp } from "../conversation/test_support.ts";
import { openOps } from "../ops/ops.ts";
import { memory } from "../storage/memory.ts";
import { openAppends } from "../sync/appends/appends.ts";
import type { Appends } from "../sync/appends/appends_port.ts";
import type { TopicSink, TopicSource } from "../sync/source.ts";
import { openSync } from "../sync/sync_plane.ts";

const { window } = parseHTML("<html><body></body></html>");
// React needs a document, and to know that its tests wait for it.
Object.assign(globalThis, { window, document: window.document, IS_REACT_ACT_ENVIRONMENT: true });

/** An element that nothing else uses. */
export function container() {
  return window.document.createElement("div");
}

/** A source whose changes a test makes. */
class HandTopics implements TopicSource {
  readonly followed: { readonly topic: string; readonly sink: TopicSink; readonly signal: AbortSignal }[] =
    [];
  #watermark = 0;

  follow(topic: string, sink: TopicSink, signal: AbortSignal): void {
    this.followed.push({ topic, sink, signal });
  }

  /** The sinks that follow a topic now. */
  sinks(topic: string): TopicSink[] {
    return this.followed
      .filter((following) => following.topic === topic && !following.signal.aborted)
      .map(({ sink }) => sink);
  }

  /** The whole topic, live. */
  async replace(topic: string, documents: Readonly<Record<string, unknown>>): Promise<void> {
    const stored = Object.entries(documents).map(([key, payload]) => ({
      key,
      version: "1",
      hash: "",
      payload,
    }));
    for (const sink of this.sinks(topic)) {
      await sink.replace(stored, this.#next());
      sink.phase("live");
    }
  }

  /** One document; undefined removes it. */
  async set(topic: string, key: string, version: number, payload: unknown): Promise<void> {
    const update = {
      topic,
      doc_key: key,
      doc_version: String(version),
      op: payload === undefined ? "delete" : "upsert",
      payload,
      payload_hash: "",
    };
    for (const sink of this.sinks(topic)) await sink.apply([update], this.#next());
  }

  #next() {
    return { epoch: "e", watermark: String(++this.#watermark) };
  }
}

/** The documents of its topics. */
export interface HandDocuments {
  readonly notes: { readonly text: string; readonly done?: boolean; readonly project?: string };
}

/** A client of real parts, on a server that a test plays. */
export function handClient() {
  const environment = new FakeEnvironment();
  const connection = new FakeConnection();
  const http = new FakeHttp();
  const topics = new HandTopics();
  const plane = openSync<HandDocuments>({
    environment,
    http,
    storage: memory(),
    log: () => {},
    onScopeNeeded: () => {},
  });
  const { appends } = openAppends({ storage: memory(), log: () => {}, environment, http, sync: plane });
  // The tests append what they like: no app declares types here.
  const sync = Object.assign(plane, appends as unknown as Appends);
  sync.setScope("test");
  sync.setSource(topics);
  const conversations = openConversations(connection, http, environment);
  conversations.setSource(socketConversationSource(connection));
  const client: KhalaClient<HandDocuments> = {
    connection,
    sync,
    conversation: conversations.get,
    conversations,
    board: openBoard(http, sync),
    approvals: openApprovals(http, sync),
    ops: openOps(connection, http, { environment }),
    async close() {
      conversations.close();
      sync.close();
    },
  };
  return { client, environment, connection, http, topics };
}
