import { randomUUID } from "node:crypto";
import type { payload } from "./bench.ts";

/** What is done with an item: `pipeline` and `waiting` take three agents in a row, `single` one, `fanout` splits and joins. */
export type Shape = "pipeline" | "waiting" | "single" | "fanout";

/** Parts that an item of the fan-out is split into. */
export const FAN = 20;

/** How often work is handed over for each item. */
export const HOPS: Readonly<Record<Shape, number>> = {
  pipeline: 3,
  waiting: 3,
  single: 1,
  fanout: 1 + FAN + 1,
};

/** How long an agent of `waiting` awaits something else, and how many tasks each agent has at a time. */
export const AWAITS_MS = 20;
export const AT_A_TIME = 100;

export const ORGS = 8;
const KEYS = 1_000;

/** What the programs of the three systems are told. */
export interface HopsWhere {
  readonly url: string;
  readonly shape: Shape;
  /** Where Khala's server listens. */
  readonly port: number;
}

/** An item as it is published. */
export interface Item {
  readonly org: string;
  readonly correlation: string;
  readonly key: string;
  readonly text: string;
}

const PROCESS = randomUUID();

/** The item of a payload. A call of a hundred belongs to one org. */
export function itemOf({ n, text }: ReturnType<typeof payload>): Item {
  return {
    org: `org-${Math.floor(n / 100) % ORGS}`,
    correlation: `${PROCESS}-${n}`,
    key: `customer-${n % KEYS}`,
    text,
  };
}
