import { KhalaError, SYNC_CHANNEL, type Wire } from "@khala/contracts";
import type { FrameJson, UpdateBatchJson } from "@khala/contracts/sync/v1";
import type { OwnConnection, Progress } from "../connection/connection.ts";
import type { Channel } from "../connection/port.ts";
import type { Environment } from "../environment.ts";
import type { Http } from "../http.ts";
import { cursorOf } from "./cursor.ts";
import { FollowedTopic } from "./followed_topic.ts";
import type { TopicSink, TopicSource, Update } from "./source.ts";

export interface SocketSourceOptions {
  readonly connection: Pick<OwnConnection, "channel" | "progress" | "status" | "subscribe">;
  readonly http: Http;
  readonly environment: Environment;
}

/** The source of topics on this tab's socket. */
export interface SocketSource extends TopicSource {
  /** Subscribes again to forbidden topics, after the token changed. */
  retryForbidden(): void;
}

type Frame = Omit<Wire<FrameJson>, "update_batch"> & {
  readonly update_batch?: Omit<Wire<UpdateBatchJson>, "updates"> & { readonly updates?: readonly Update[] };
};

/** A new token reaches the server a moment after the client has it. */
const AUTH_MS = 1_000;

/** Follows topics on this tab's socket: one channel for all, joined with the first. */
export function socketSource({ connection, http, environment }: SocketSourceOptions): SocketSource {
  const followed = new Map<string, FollowedTopic>();
  let channel: Channel | undefined;
  let joined = false;

  const open = (): Channel =>
    connection.channel(SYNC_CHANNEL, {
      params: () => ({}),
      onJoined() {
        joined = true;
        for (const topic of [...followed.values()]) topic.joined();
      },
      onEvent: (event, payload) => event === "frame" && receive(payload as Frame),
      onLeft(error) {
        joined = false;
        for (const topic of [...followed.values()]) topic.left(error);
      },
    });

  /** Nothing is followed: the server need not keep the channel, and the connection may close. */
  function leave(): void {
    channel?.leave();
    channel = undefined;
    joined = false;
  }

  function receive({ update_batch, heartbeat, error }: Frame): void {
    if (update_batch) {
      const { topic = "", updates = [], through, replay_complete = false } = update_batch;
      followed.get(topic)?.batch(updates, cursorOf(through), replay_complete);
    }
    for (const [topic, cursor] of Object.entries(heartbeat?.watermarks ?? {}))
      followed.get(topic)?.batch([], cursorOf(cursor), false);
    if (error?.code === "stale_cursor")
      for (const { topic = "" } of error.topics ?? []) followed.get(topic)?.stale();
  }

  function report(): void {
    const topics = [...followed.values()];
    const all = topics.map(({ progress }) => progress);
    const progress: Progress = all.includes("stale")
      ? "stale"
      : all.includes("replaying")
        ? "replaying"
        : "live";
    const known = topics.flatMap(({ behind }) => behind ?? []);
    connection.progress(progress, known.length > 0 ? known.reduce((sum, n) => sum + n) : undefined);
  }

  /** Reports the connection's state while the channel is not joined. */
  function reportDisconnect(topic: FollowedTopic): void {
    const { state, attempt, error } = connection.status();
    if (joined || state === "idle" || (state === "connecting" && attempt === 0 && !error)) return;
    if (state === "unauthorised")
      topic.forbidden(error ?? new KhalaError("invalid_token", "The server refused the token."));
    else if (state !== "live" && state !== "replaying" && state !== "stale") topic.offline(error);
  }

  connection.subscribe(() => {
    for (const topic of [...followed.values()]) reportDisconnect(topic);
  });

  return {
    follow(name: string, sink: TopicSink, signal: AbortSignal) {
      if (signal.aborted) return;
      followed.get(name)?.end();
      const topic = new FollowedTopic(name, sink, {
        http,
        environment,
        push: (event, payload, onReply) =>
          channel?.push(event, payload, onReply) ?? Promise.reject(notJoined()),
        onProgress: report,
      });
      followed.set(name, topic);
      signal.addEventListener(
        "abort",
        () => {
          topic.end();
          if (followed.get(name) !== topic) return;
          followed.delete(name);
          if (followed.size === 0) leave();
          else if (joined) channel?.push("unsubscribe", { topics: [name] }).catch(() => {});
          report();
        },
        { once: true },
      );
      channel ??= open();
      if (joined) topic.joined();
      else reportDisconnect(topic);
      report();
    },
    retryForbidden() {
      environment.timer(AUTH_MS, () => {
        if (joined) for (const topic of [...followed.values()]) if (topic.isForbidden) topic.joined();
      });
    },
  };
}

function notJoined(): KhalaError {
  return new KhalaError("unavailable", "The sync channel is not joined at the moment.");
}
