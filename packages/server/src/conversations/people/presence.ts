import type { PresentJson } from "@khala/contracts/conversation/v1";
import type { Context } from "../../kit/context.ts";
import { runLoop, type Service, Wake } from "../../kit/service.ts";
import { type ConversationId, idKey } from "../conversation.ts";
import { TimelineFrame } from "../timeline/timeline.ts";
import { type Announcement, encodeAnnouncement, parseAnnouncement } from "./presence_wire.ts";

/** A socket that shows who is connected, and is shown itself. */
export interface PresentSocket {
  readonly subject: string;
  readonly device: string;
  /** Sends the list; a socket that cannot take it now gets the next one. */
  offer(frame: TimelineFrame): void;
}

/** A socket's place among those that are present. */
export interface Place {
  /** The person writes, or has stopped. It also ends by itself after a few seconds. */
  typing(on: boolean): void;
  leave(): void;
}

/** The connected users of conversations, on all servers. Nothing of it is stored. */
export interface Presence extends Service {
  join(conversation: ConversationId, socket: PresentSocket): Place;
  /** Another server's announcement: the rest of a wakeup with the prefix `presence:`. */
  onWakeup(text: string): void;
}

export interface PresenceOptions {
  readonly serverId: string;
  /** Sends a wakeup to the other servers; it may be lost. */
  readonly send: (name: string) => void;
}

/** The prefix of wakeups that carry an announcement. */
export const PRESENCE_WAKEUP = "presence:";
/** How often a server repeats its announcement, and how long that counts. */
const ANNOUNCE_MS = 5_000;
const EXPIRES_MS = 3 * ANNOUNCE_MS;
const TYPING_MS = 6_000;
/** Changes of a conversation within this time are announced together. */
const PACE_MS = 250;
const MAX_SHOWN = 100;
const MAX_REMOTE = 100_000;

interface LocalSocket extends PresentSocket {
  typingUntil: number;
}

interface Room {
  readonly conversation: ConversationId;
  readonly sockets: Set<LocalSocket>;
  /** The last state sent to its sockets, and to the other servers. */
  shown: string;
  announced: string;
  cancelPace: (() => void) | undefined;
}

interface Remote {
  readonly present: readonly PresentJson[];
  readonly expiresAt: number;
}

/** Opens the presence. Each announcement of a server replaces its last one, and expires: a dead server's users disappear. */
export function openPresence(context: Context, { serverId, send }: PresenceOptions): Presence {
  const { clock } = context;
  const rooms = new Map<string, Room>();
  /** By conversation and server. Also of conversations without sockets here, which may get some. */
  const remotes = new Map<string, Map<string, Remote>>();
  let remoteCount = 0;
  let announcements = 0;
  let announcedAt = clock.now();

  const localOf = ({ sockets }: Room): PresentJson[] =>
    merge(
      [...sockets].map(({ subject, device, typingUntil }) => ({
        subject,
        device,
        typing: typingUntil > clock.now(),
      })),
    );

  function frameOf(key: string, room: Room): TimelineFrame {
    const others = [...(remotes.get(key)?.values() ?? [])].flatMap(({ present }) => present);
    const present = merge([...localOf(room), ...others]).slice(0, MAX_SHOWN);
    return new TimelineFrame(room.conversation.convId, JSON.stringify({ type: "presence", present }));
  }

  function show(key: string, room: Room): void {
    const frame = frameOf(key, room);
    if (frame.json === room.shown) return;
    room.shown = frame.json;
    for (const socket of room.sockets) socket.offer(frame);
  }

  function announce(room: Room, asks = false): void {
    const present = localOf(room);
    room.announced = JSON.stringify(present);
    const announcement = { ...room.conversation, server: serverId, n: ++announcements, asks, present };
    send(`${PRESENCE_WAKEUP}${encodeAnnouncement(announcement)}`);
  }

  const isAnnounced = (room: Room) => JSON.stringify(localOf(room)) === room.announced;

  /** The first change is announced at once, the changes of the next moment together. */
  function changed(key: string, room: Room): void {
    if (room.cancelPace) return;
    show(key, room);
    announce(room);
    if (room.sockets.size === 0) return;
    room.cancelPace = clock.after(PACE_MS, () => {
      room.cancelPace = undefined;
      if (rooms.get(key) === room && !isAnnounced(room)) changed(key, room);
    });
  }

  function setRemote(key: string, { server, present }: Announcement): void {
    const servers = remotes.get(key) ?? new Map<string, Remote>();
    if (servers.delete(server)) remoteCount--;
    if (present.length > 0 && remoteCount < MAX_REMOTE) {
      servers.set(server, { present, expiresAt: clock.now() + EXPIRES_MS });
      remoteCount++;
    }
    if (servers.size > 0) remotes.set(key, servers);
    else remotes.delete(key);
  }

  function expire(now: number): void {
    for (const [key, servers] of remotes) {
      for (const [server, { expiresAt }] of servers) {
        if (expiresAt > now) continue;
        servers.delete(server);
        remoteCount--;
      }
      if (servers.size === 0) remotes.delete(key);
    }
  }

  const ticking = runLoop(context, "conversation presence", {
    wake: new Wake(),
    idleMs: 1_000,
    async step() {
      const now = clock.now();
      expire(now);
      const repeat = now - announcedAt >= ANNOUNCE_MS;
      if (repeat) announcedAt = now;
      for (const [key, room] of rooms) {
        show(key, room);
        if (repeat || !isAnnounced(room)) announce(room);
      }
      return false;
    },
  });

  return {
    join(conversation, joining) {
      const { org, convId } = conversation;
      const key = idKey(conversation);
      const there = rooms.get(key);
      const room: Room = there ?? {
        conversation: { org, convId },
        sockets: new Set(),
        shown: "",
        announced: "",
        cancelPace: undefined,
      };
      rooms.set(key, room);
      const socket: LocalSocket = { ...joining, typingUntil: 0 };
      room.sockets.add(socket);
      // The others answer with who is present there.
      if (!there) announce(room, true);
      const before = room.shown;
      changed(key, room);
      if (room.shown === before) socket.offer(frameOf(key, room));
      let left = false;
      return {
        typing(on) {
          const was = socket.typingUntil > clock.now();
          socket.typingUntil = on && !left ? clock.now() + TYPING_MS : 0;
          if (was !== on && !left) changed(key, room);
        },
        leave() {
          if (left) return;
          left = true;
          room.sockets.delete(socket);
          if (room.sockets.size === 0) {
            room.cancelPace?.();
            room.cancelPace = undefined;
            rooms.delete(key);
          }
          changed(key, room);
        },
      };
    },

    onWakeup(text) {
      const announcement = parseAnnouncement(text);
      if (!announcement || announcement.server === serverId) return;
      const key = idKey(announcement);
      setRemote(key, announcement);
      const room = rooms.get(key);
      if (!room) return;
      show(key, room);
      if (announcement.asks) announce(room);
    },

    async stop() {
      await ticking.stop();
      for (const room of rooms.values()) {
        room.cancelPace?.();
        room.sockets.clear();
        announce(room);
      }
      rooms.clear();
    },
  };
}

/** One for each device of a person: it may have several sockets. */
function merge(all: readonly PresentJson[]): PresentJson[] {
  const byDevice = new Map<string, PresentJson>();
  for (const { subject = "", device = "", typing = false } of all) {
    const key = JSON.stringify([subject, device]);
    byDevice.set(key, { subject, device, typing: typing || byDevice.get(key)?.typing === true });
  }
  return [...byDevice].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, present]) => present);
}
