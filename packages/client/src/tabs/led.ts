import { KhalaError } from "@khala/contracts";
import type { FromLeader } from "./messages.ts";

/** A question to the tab that leads. */
export interface Question {
  readonly number: number;
  /** Asks for the next part of the answer. */
  next(): void;
  failed(name: string, error: unknown): void;
}

/** Something that is followed through the tab that leads. */
export interface Led {
  /** There is a leader, perhaps a new one: asks for what is missing. */
  ask(): void;
  /** The leader does not answer. */
  lost(): void;
  /** This tab does not follow any more. */
  stopped(): void;
  receive(message: FromLeader): void;
}

/** Why nothing comes while another tab leads and says nothing. */
export function silent(): KhalaError {
  return new KhalaError(
    "unavailable",
    "The tab that holds the connection does not answer. Look at it, or close it.",
  );
}
