import type { Model } from "../model.ts";
import { boundsFor, partQuery, type TopicPart } from "../part.ts";
import type { Bounds, Journal, JournalRow, ReadLimits, Want, WantedPage } from "./journal.ts";

/** Rows for one viewer, complete up to `through`; "stale" when retention removed rows that it needs. */
export type BacklogPage = { readonly rows: readonly JournalRow[]; readonly through: bigint } | "stale";

type Position = Omit<Want, "bytes">;

interface Request {
  readonly org: string;
  readonly subject: string;
  readonly part: TopicPart | undefined;
  readonly after: bigint;
  /** Shares a read with its own position only. */
  readonly exact: boolean;
  readonly resolve: (page: BacklogPage) => void;
  readonly reject: (error: unknown) => void;
}

/** Positions this close together start from the same read. */
const NEIGHBOURS = 256n;
const MAX_SHARED = 64;
/** Maximum viewers per read: as many as one gateway has sockets. */
const MAX_NAMED = 10_000;
/** Memory limit of a round; half of it is for rows that a whole org sees. */
const ROUND_BYTES = 32 << 20;

/**
 * Reads for subscriptions that are behind the rows in memory. However many ask at once, a round is one read of the
 * database: rows that a whole org sees are read once for all of its viewers, named rows once per subject.
 */
export class Backlog {
  readonly #journal: Journal;
  readonly #model: Model;
  readonly #limits: ReadLimits;
  #waiting: Request[] = [];
  #running = false;
  #floors = { floor: 0n, partsFloor: 0n };

  constructor(journal: Journal, model: Model, limits: ReadLimits) {
    this.#journal = journal;
    this.#model = model;
    this.#limits = limits;
  }

  /** The floors as the last read found them, which is what a page was stale for. */
  get floors(): Pick<Bounds, "floor" | "partsFloor"> {
    return this.#floors;
  }

  /** The next rows that a viewer sees after a position: all, or those of a part. */
  read(
    viewer: { org: string; subject: string; part?: TopicPart | undefined },
    after: bigint,
  ): Promise<BacklogPage> {
    return new Promise((resolve, reject) => {
      const { org, subject, part } = viewer;
      this.#waiting.push({ org, subject, part, after, exact: false, resolve, reject });
      if (!this.#running) void this.#run();
    });
  }

  async #run(): Promise<void> {
    this.#running = true;
    // Sockets that reconnect together ask within the same tick.
    await new Promise(setImmediate);
    while (this.#waiting.length > 0) await this.#round();
    this.#running = false;
  }

  async #round(): Promise<void> {
    const shared = new Map<string, Position>();
    const named = new Map<string, Position>();
    const served: Request[] = [];
    const left: Request[] = [];
    for (const request of this.#waiting) {
      const { org, subject, after, part } = request;
      const { sharedKey, namedKey } = keys(request);
      const fits =
        (sharedKey === undefined || shared.size < MAX_SHARED || shared.has(sharedKey)) &&
        (named.size < MAX_NAMED || named.has(namedKey));
      (fits ? served : left).push(request);
      if (!fits) continue;
      if (sharedKey !== undefined) lower(shared, sharedKey, { org, subject: null, after });
      lower(named, namedKey, part ? { org, subject: null, part, after } : { org, subject, after });
    }
    this.#waiting = left;
    const wants = [...this.#portions(shared), ...this.#portions(named)];
    try {
      const limits = { ...this.#limits, bytes: ROUND_BYTES };
      const { pages, bounds } = await this.#journal.readWanted(this.#model, wants, limits);
      this.#floors = bounds;
      const byKey = new Map([...shared.keys(), ...named.keys()].map((key, i) => [key, pages[i]!]));
      for (const request of served) {
        const { sharedKey, namedKey } = keys(request);
        const pages = [sharedKey, namedKey].flatMap((key) => (key === undefined ? [] : byKey.get(key)!));
        this.#answer(request, pages, bounds);
      }
    } catch (error) {
      for (const request of served) request.reject(error);
    }
  }

  /** Each gets a page's worth, or its part of the round's half where they are many. */
  #portions(wants: ReadonlyMap<string, Position>): Want[] {
    const bytes = Math.min(this.#limits.bytes, Math.floor(ROUND_BYTES / 2 / wants.size));
    return [...wants.values()].map((want) => ({ ...want, bytes }));
  }

  #answer(request: Request, pages: readonly WantedPage[], unbound: Bounds): void {
    const { after, subject, part } = request;
    const bounds = boundsFor(part, unbound);
    // Below the floor rows are missing; beyond the head it is a position of another database.
    if (after < bounds.floor || after > bounds.head) return request.resolve("stale");
    if (after === bounds.head) return request.resolve({ rows: [], through: after });
    const through = pages.map((page) => page.through).reduce((a, b) => (a < b ? a : b));
    if (through <= after) {
      // The shared page ended before this position, or the round was full: retries alone.
      this.#waiting.push({ ...request, exact: true });
      return;
    }
    const fits = (row: JournalRow) =>
      row.watermark > after &&
      row.watermark <= through &&
      !row.hiddenFrom?.includes(subject) &&
      // The rows of a part are read for all who follow it.
      (!part || (row.audience?.includes(subject) ?? true));
    const rows = pages.flatMap((page) => page.rows.filter(fits));
    rows.sort((a, b) => (a.watermark < b.watermark ? -1 : 1));
    request.resolve(this.#cut(rows, through));
  }

  /** Each of the two pages is within the limits; what they make together may not be. */
  #cut(rows: readonly JournalRow[], through: bigint): BacklogPage {
    const { rows: most, bytes: room, payloadBytes } = this.#limits;
    let bytes = 0;
    const end = rows.findIndex((row, i) => {
      bytes += Math.min(row.payloadBytes, payloadBytes);
      return i > 0 && (i >= most || bytes > room);
    });
    if (end < 0) return { rows, through };
    return { rows: rows.slice(0, end), through: rows[end - 1]!.watermark };
  }
}

/** The wants that a request shares with others: the rows of the whole org and those of its subject, or those of its part. */
function keys({ org, subject, part, after, exact }: Request): {
  sharedKey: string | undefined;
  namedKey: string;
} {
  const block = exact ? `at ${after}` : after / NEIGHBOURS;
  if (part)
    return { sharedKey: undefined, namedKey: `part ${block} ${JSON.stringify([org, partQuery(part)])}` };
  return { sharedKey: `org ${block} ${org}`, namedKey: `subject ${block} ${JSON.stringify([org, subject])}` };
}

function lower(wants: Map<string, Position>, key: string, want: Position): void {
  const there = wants.get(key);
  if (!there || want.after < there.after) wants.set(key, want);
}
