import type { PresentJson } from "@khala/contracts/conversation/v1";
import type { ConversationId } from "../conversation.ts";

/** The connected users of a conversation on one server. */
export interface Announcement extends ConversationId {
  readonly server: string;
  /** Counts the server's announcements, so that none is taken for a repetition. */
  readonly n: number;
  /** Whether the others shall say who is connected there. */
  readonly asks: boolean;
  readonly present: readonly PresentJson[];
}

/** A NOTIFY has at most 8,000 bytes, and others share it. */
const MAX_BYTES = 3_000;

/** The announcement as ASCII without line breaks; users beyond its size are left out. */
export function encodeAnnouncement({ server, n, org, convId, asks, present }: Announcement): string {
  for (let count = present.length; ; count--) {
    const people = present
      .slice(0, count)
      .map(({ subject, device, typing }) => [subject, device, typing ? 1 : 0]);
    const text = ascii(JSON.stringify([server, n, org, convId, asks ? 1 : 0, people]));
    if (text.length <= MAX_BYTES || count === 0) return text;
  }
}

/** Reads an announcement; undefined for anything else. */
export function parseAnnouncement(text: string): Announcement | undefined {
  try {
    const [server, n, org, convId, asks, people] = JSON.parse(text) as [
      string,
      number,
      string,
      string,
      number,
      [string, string, number][],
    ];
    const present = people.map(([subject, device, typing]) => ({ subject, device, typing: typing === 1 }));
    return { server, n, org, convId, asks: asks === 1, present };
  } catch {
    return undefined;
  }
}

function ascii(json: string): string {
  return json.replace(/[^\x20-\x7e]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
