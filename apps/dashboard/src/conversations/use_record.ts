import type { KhalaClient } from "@khala/client";
import { useKhala } from "@khala/client/react";
import { useEffect, useState } from "react";
import { type ErrorInfo, useFetch } from "../data/fetch.ts";

/** A conversation as the server has it: with how its last run ended, and who takes part. */
export type ConversationRecord = Awaited<ReturnType<KhalaClient["conversations"]["read"]>>;

export interface RecordState {
  readonly record: ConversationRecord | undefined;
  /** There is no such conversation for this user, yet or any more. Following it would create it. */
  readonly isAbsent: boolean;
  /** Its id was made by this page, and nobody has written anything. */
  readonly isNew: boolean;
  readonly error: ErrorInfo | undefined;
  readonly refetch: () => void;
  /** The first message was sent. */
  readonly begun: () => void;
}

const EVERY_MS = 3_000;
const made = new Set<string>();

/** Makes an id that sorts by time. Nothing exists under it before the first message. */
export function newConversationId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  const id = `chat-${Date.now().toString(36)}-${Array.from(bytes, (byte) => (byte % 36).toString(36)).join("")}`;
  made.add(id);
  return id;
}

/** Reads a conversation without following it. While there is none, it asks again: another device may begin it. */
export function useRecord(convId: string): RecordState {
  const { conversations } = useKhala();
  const [isNew, setNew] = useState(() => made.has(convId));
  const state = useFetch(isNew ? undefined : ["conversation", convId], (signal) =>
    conversations.read(convId, { signal }),
  );
  const { data: record, error, refetch } = state;
  const isMissing = error?.code === "not_found";
  useEffect(() => {
    if (!isMissing) return;
    const timer = setInterval(refetch, EVERY_MS);
    return () => clearInterval(timer);
  }, [isMissing, refetch]);
  return {
    record,
    isAbsent: isNew || isMissing,
    isNew,
    error: isMissing ? undefined : error,
    refetch,
    begun() {
      made.delete(convId);
      setNew(false);
      refetch();
    },
  };
}
