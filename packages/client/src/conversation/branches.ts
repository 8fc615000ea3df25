import type { TranscriptMessageJson } from "@khala/contracts/conversation/v1";

/** The branches at a message: "2 / 3", and where to go from there. */
export interface Branches {
  /** From 1. */
  readonly position: number;
  readonly count: number;
  /** Messages for `chooseBranch`. */
  readonly previous: string | undefined;
  readonly next: string | undefined;
}

/** The branches at a message; undefined when it is the only one. */
export function branchesOf({ message_id = "", siblings = [] }: TranscriptMessageJson): Branches | undefined {
  const index = siblings.indexOf(message_id);
  if (index < 0 || siblings.length < 2) return undefined;
  return {
    position: index + 1,
    count: siblings.length,
    previous: siblings[index - 1],
    next: siblings[index + 1],
  };
}
