import { type Database, isRepeatable } from "../../../server/src/database/database.ts";
import type { Model } from "../../../server/src/sync/model.ts";
import { readCheckpoint } from "../../../server/src/sync/write/projector.ts";
import type { Sink, Written } from "../../../server/src/sync/write/sink.ts";
import type { DocumentWrite } from "../../../server/src/sync/write/write_statement.ts";

/** Writes documents as a projection does that made them of no event: its checkpoint stays where it is. */
export async function writeDocuments(
  database: Database,
  sink: Sink,
  model: Model,
  writes: readonly DocumentWrite[],
): Promise<Written[]> {
  for (;;) {
    const { position, generation } = await readCheckpoint(database, model.topic);
    try {
      return await sink.commit(model, writes, { from: position, to: position, generation });
    } catch (error) {
      // The projection itself moved it meanwhile.
      if (!isRepeatable(error)) throw error;
    }
  }
}

/** Writes one document. */
export async function writeDocument(
  database: Database,
  sink: Sink,
  model: Model,
  write: DocumentWrite,
): Promise<Written> {
  const [written] = await writeDocuments(database, sink, model, [write]);
  return written!;
}
