import { createHash } from "node:crypto";
import { KhalaError } from "@khala/contracts";
import type { Database } from "../../database/database.ts";
import { readEvents } from "../../events/authority.ts";
import { sleep } from "../../kit/clock.ts";
import type { Context } from "../../kit/context.ts";
import { documentId, type Model } from "../model.ts";
import { BEFORE_ALL, type CurrentDocument, createReadModel, type DocumentName } from "../read/read_models.ts";
import { countFailedStreams } from "../write/failed_streams.ts";
import { foldEvents } from "../write/projection.ts";
import {
  adoptFailedStreams,
  BATCH,
  emitDiffering,
  nextRange,
  replaceFailedStreams,
} from "./reprojection_cutover.ts";
import { BY_INDEX, type Connection, ShadowModel } from "./reprojection_shadow.ts";

/** The progress of a reprojection. */
export interface ReprojectionProgress {
  readonly topic: string;
  readonly phase: "folding" | "comparing";
  /** The newest event that the rebuilt documents contain, and the newest that the live ones do. */
  readonly position: bigint;
  readonly head: bigint;
  /** Documents compared so far, and how many of them differed and were re-emitted. */
  readonly documents: bigint;
  readonly differing: bigint;
}

export interface ReprojectionOptions {
  /** Store payloads in the journal too, as the servers do; false in pointer mode. */
  readonly inline: boolean;
  /** Starts over instead of resuming an interrupted one. */
  readonly restart?: boolean;
  /** Stops between two steps; the next run resumes from there. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: ReprojectionProgress) => void;
  /** Called after each commit that moved the topic. */
  readonly onCommit?: (topic: string) => void;
}

/** The advisory lock; any constant. */
const ADVISORY_LOCK = 7_240_116;
/** Maximum events to apply while the live projector waits. */
const FOLDED_UNDER_LOCK = 1_000n;
/** The number of events that distinguish one state of the code from another. */
const PROBED_EVENTS = 1_000;
/** Time for the live projector between two cutovers. */
const PATIENCE = { most: 2_000, least: 50, pollMs: 20 };

interface Progress {
  readonly position: bigint;
  readonly comparedTo: DocumentName;
  readonly documents: bigint;
  readonly differing: bigint;
}

const BEGINNING: Progress = { position: 0n, comparedTo: BEFORE_ALL, documents: 0n, differing: 0n };

/**
 * Rebuilds a read model from the log with the model's code of today, beside the live one, then makes the live one equal
 * to it, re-emitting only the documents that differ. Servers keep running, and should already have the same code.
 * An interrupted run leaves the live model unchanged and is resumed by the next call.
 *
 * Streams that the live projection has set aside are part of it, and no longer set aside once it is done. Streams that today's
 * code cannot take are set aside, and hold nothing else up.
 */
export async function reproject(
  database: Database,
  context: Context,
  model: Model,
  options: ReprojectionOptions,
): Promise<ReprojectionProgress> {
  const session = await database.connect();
  // A lost session loses the lock; every step is guarded by the run's id as well, so that two never mix.
  session.on("error", (error) => context.log.debug({ err: error.message }, "a session broke"));
  try {
    const lock = "SELECT pg_try_advisory_lock($1, hashtext($2)) AS locked";
    const { rows } = await session.query(lock, [ADVISORY_LOCK, model.topic]);
    if (!rows[0].locked) {
      const message = `A reprojection of ${model.topic} is already running. Wait until it is done, or stop it.`;
      throw new KhalaError("unavailable", message);
    }
    return await new Reprojection(database, context, model, options).run();
  } finally {
    // A broken session cannot be ended, and need not be.
    await session.end().catch(() => {});
  }
}

class Reprojection {
  readonly #database: Database;
  readonly #context: Context;
  readonly #model: Model;
  readonly #options: ReprojectionOptions;
  readonly #run: string;
  readonly #shadow: ShadowModel;
  #progress: Progress = BEGINNING;
  /**
   * Documents that events changed after comparing began, by `documentId`. They are compared again: the live projection skips
   * the events of streams that it has set aside.
   */
  readonly #changed = new Map<string, DocumentName>();
  #patience: number = PATIENCE.most;

  constructor(database: Database, context: Context, model: Model, options: ReprojectionOptions) {
    this.#database = database;
    this.#context = context;
    this.#model = model;
    this.#options = options;
    this.#run = context.newId();
    this.#shadow = new ShadowModel(model);
  }

  async run(): Promise<ReprojectionProgress> {
    const code = await codeOf(this.#database, this.#model);
    this.#progress = (await this.#resume(code)) ?? (await this.#begin(code));
    let live = await this.#live(this.#database);
    for (;;) {
      this.#options.signal?.throwIfAborted();
      if (live - this.#progress.position > FOLDED_UNDER_LOCK) {
        await this.#step((tx) => this.#fold(tx, live));
        this.#report("folding", live);
      } else {
        const cut = await this.#step((tx) => this.#cutOver(tx));
        for (const id of cut.compared ?? []) this.#changed.delete(id);
        if (cut.emitted > 0) this.#options.onCommit?.(this.#model.topic);
        this.#report("comparing", cut.live);
        if (cut.finished) break;
        if (cut.emitted > 0) await this.#letTheLiveOneMove(cut.live);
      }
      live = await this.#live(this.#database);
    }
    await this.#shadow.clear(this.#database);
    await this.#prune();
    return this.#asReport("comparing", live);
  }

  /** Resumes an interrupted run of the same code. */
  async #resume(code: string): Promise<Progress | undefined> {
    if (this.#options.restart) return undefined;
    const [progress] = await this.#database.query<Pick<Progress, "position" | "differing">>({
      text: `UPDATE runtime.sync_reprojections SET run = $2 WHERE topic = $1 AND code = $3
        RETURNING position, differing`,
      values: [this.#model.topic, this.#run, code],
    });
    // Changes after the comparison are not recorded, so everything is compared again.
    return progress && { ...BEGINNING, ...progress };
  }

  async #begin(code: string): Promise<Progress> {
    const { topic } = this.#model;
    // Without its row, the remains of an older reprojection have no owner, even if this is interrupted in between.
    await this.#database.query({
      text: "DELETE FROM runtime.sync_reprojections WHERE topic = $1",
      values: [topic],
    });
    await this.#shadow.clear(this.#database);
    await this.#database.query({
      text: "INSERT INTO runtime.sync_reprojections (topic, run, code) VALUES ($1, $2, $3)",
      values: [topic, this.#run, code],
    });
    return BEGINNING;
  }

  /** One transaction, and what it did to the progress once it is committed. */
  async #step<T extends { progress: Progress }>(step: (tx: Connection) => Promise<T>): Promise<T> {
    try {
      const done = await this.#database.interactive(async (tx) => {
        await tx.query(BY_INDEX);
        return step(tx);
      });
      this.#progress = done.progress;
      return done;
    } catch (error) {
      this.#shadow.reset();
      throw error;
    }
  }

  async #fold(tx: Connection, upTo: bigint): Promise<{ progress: Progress }> {
    const position = await this.#apply(tx, this.#progress.position, upTo);
    return { progress: await this.#save(tx, { ...this.#progress, position }) };
  }

  async #apply(tx: Connection, from: bigint, upTo: bigint): Promise<bigint> {
    const { position, changed } = await this.#shadow.fold(tx, from, upTo);
    if (this.#progress.comparedTo !== BEFORE_ALL)
      for (const { org, docKey } of changed) this.#changed.set(documentId({ org, docKey }), { org, docKey });
    return position;
  }

  /** Brings the rebuilt model to the live position under its lock, and settles a range of documents. */
  async #cutOver(tx: Connection) {
    const live = await this.#live(tx, "FOR UPDATE");
    let { position, comparedTo, documents, differing } = this.#progress;
    if (position > live) {
      const message = `The checkpoint of ${this.#model.topic} moved back during the reprojection. Restart the reprojection.`;
      throw new KhalaError("unavailable", message);
    }
    // The projector has advanced: applies those events first, without the lock.
    if (live - position > FOLDED_UNDER_LOCK)
      return { progress: this.#progress, live, emitted: 0, finished: false };
    while (position < live) position = await this.#apply(tx, position, live);
    const range = await nextRange(tx, this.#model, comparedTo);
    const changed = [...this.#changed].slice(0, BATCH.documents);
    if (!range && changed.length === 0) {
      const progress = await this.#save(tx, { ...this.#progress, position });
      if (await replaceFailedStreams(tx, this.#model)) await this.#invalidate(tx);
      const text = "DELETE FROM runtime.sync_reprojections WHERE topic = $1";
      await tx.query({ text, values: [this.#model.topic] });
      return { progress, live, emitted: 0, finished: true };
    }
    const adopted = await adoptFailedStreams(tx, this.#model);
    // A try of what is set aside, begun before this reprojection, must not commit any more.
    const trying = comparedTo === BEFORE_ALL && (await countFailedStreams(tx, this.#model.topic)) > 0;
    const { inline } = this.#options;
    const names = changed.map(([, name]) => name);
    let emitted = names.length > 0 ? await emitDiffering(tx, this.#model, names, inline) : 0;
    if (range) emitted += await emitDiffering(tx, this.#model, range, inline);
    if (emitted > 0 || adopted || trying) await this.#invalidate(tx);
    if (range) {
      comparedTo = range.upTo;
      documents += range.documents;
    }
    differing += BigInt(emitted);
    const progress = await this.#save(tx, { position, comparedTo, documents, differing });
    return { progress, live, emitted, finished: false, compared: changed.map(([id]) => id) };
  }

  /** Removes indexes that the model does not declare any more. Only the schema's owner may, and nothing else needs it. */
  async #prune(): Promise<void> {
    const prune = this.#database.interactive((tx) => tx.query(createReadModel(this.#model, { prune: true })));
    await prune.catch((error) =>
      this.#context.log.warn(
        { err: error.message },
        "indexes that are not declared any more were not removed",
      ),
    );
  }

  /** Makes the live projection read its documents, and what it has set aside, again before it commits. */
  async #invalidate(tx: Connection): Promise<void> {
    const text = "UPDATE runtime.sync_checkpoints SET generation = generation + 1 WHERE topic = $1";
    await tx.query({ text, values: [this.#model.topic] });
  }

  async #save(tx: Connection, progress: Progress): Promise<Progress> {
    const saved = await tx.query({
      name: "reprojection_save",
      text: `UPDATE runtime.sync_reprojections SET position = $3, compared_org = $4, compared_key = $5, documents = $6, differing = $7
        WHERE topic = $1 AND run = $2 RETURNING 1`,
      values: [
        this.#model.topic,
        this.#run,
        progress.position,
        progress.comparedTo.org,
        progress.comparedTo.docKey,
        progress.documents,
        progress.differing,
      ],
    });
    if (saved.length === 0) throw new Error(`Another reprojection of ${this.#model.topic} took over.`);
    return progress;
  }

  /** The position that the live documents are true at. */
  async #live(tx: Connection, lock = ""): Promise<bigint> {
    const { topic } = this.#model;
    const text = `SELECT position FROM runtime.sync_checkpoints WHERE topic = $1 ${lock}`;
    const [row] = await tx.query<{ position: bigint }>({ text, values: [topic] });
    if (row) return row.position;
    const message = `The topic ${topic} is not in this database. Start a server with the model once, then try again.`;
    throw new KhalaError("not_found", message);
  }

  /** Each cutover that wrote makes the projector read its documents again: let it commit something in between. */
  async #letTheLiveOneMove(from: bigint): Promise<void> {
    const { clock } = this.#context;
    const until = clock.now() + this.#patience;
    while (clock.now() < until && !this.#options.signal?.aborted) {
      const [row] = await this.#database.query<{ done: boolean }>({
        text: `SELECT c.position > $2 OR h.position = c.position AS done
          FROM runtime.sync_checkpoints c, runtime.event_log_head h WHERE c.topic = $1`,
        values: [this.#model.topic, from],
      });
      if (row?.done) {
        this.#patience = PATIENCE.most;
        return;
      }
      await sleep(clock, PATIENCE.pollMs, this.#options.signal);
    }
    // The projector is idle or not running.
    this.#patience = Math.max(PATIENCE.least, this.#patience / 2);
  }

  #report(phase: ReprojectionProgress["phase"], head: bigint): void {
    this.#options.onProgress?.(this.#asReport(phase, head));
  }

  #asReport(phase: ReprojectionProgress["phase"], head: bigint): ReprojectionProgress {
    const { position, documents, differing } = this.#progress;
    return { topic: this.#model.topic, phase, position, head, documents, differing };
  }
}

/**
 * A fingerprint of a model's code: the source of its functions, and their results for the
 * first events, because imported code is not part of the source.
 */
async function codeOf(database: Database, model: Model): Promise<string> {
  const hash = createHash("sha256").update(
    [model.id, model.project, model.audience, model.expiresAt].map(String).join("\n"),
  );
  const documents = new Map<string, CurrentDocument>();
  const events = await readEvents(database, 0n, PROBED_EVENTS);
  const { writes, failures } = foldEvents(model, events, documents, new Set());
  for (const { docKey, payload, org, audience } of writes)
    hash.update(JSON.stringify([docKey, payload, org, audience]));
  for (const { message } of failures) hash.update(message);
  return hash.digest("hex");
}
