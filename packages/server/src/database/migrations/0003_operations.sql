-- What operators do beside the running servers: rebuilding a read model.

-- A reprojection writes documents that a projector may remember in an older version. The generation tells it:
-- a checkpoint moves only for a projector that has read the documents since the last one.
ALTER TABLE runtime.sync_checkpoints ADD COLUMN generation bigint NOT NULL DEFAULT 0;

DROP FUNCTION runtime.advance_checkpoint(text, bigint, bigint);

-- Moves a checkpoint, or fails the transaction: whoever finds another position is not the only projector,
-- and whoever finds another generation remembers documents that were rebuilt meanwhile.
CREATE FUNCTION runtime.advance_checkpoint(p_topic text, p_from bigint, p_to bigint, p_generation bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE runtime.sync_checkpoints SET position = p_to, updated_at = now()
  WHERE topic = p_topic AND position = p_from AND generation = p_generation;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the checkpoint of % is not at % of generation %', p_topic, p_from, p_generation USING ERRCODE = '40001';
  END IF;
END $$;

-- How far each reprojection has come, so that one that was interrupted goes on where it stopped.
CREATE TABLE runtime.sync_reprojections (
  topic text PRIMARY KEY,
  -- Who is at it. A run that finds another one here has been replaced.
  run text NOT NULL,
  -- The code that the rebuilt documents were made with.
  code text NOT NULL,
  -- The newest event that the rebuilt documents contain.
  position bigint NOT NULL DEFAULT 0,
  -- Documents up to this key are compared, and re-emitted where they differed.
  compared_to text COLLATE "C" NOT NULL DEFAULT '',
  documents bigint NOT NULL DEFAULT 0,
  differing bigint NOT NULL DEFAULT 0,
  started_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 10);

-- Read models as reprojections make them, beside the live ones.
CREATE TABLE runtime.sync_rebuilt_documents (
  topic text NOT NULL,
  doc_key text COLLATE "C" NOT NULL,
  doc_version bigint NOT NULL,
  payload bytea,
  payload_hash bytea,
  org_id text NOT NULL,
  audience text[],
  deleted boolean NOT NULL,
  PRIMARY KEY (topic, doc_key)
) WITH (fillfactor = 80);

-- Which second sink the position belongs to: another one starts with a list of everything.
ALTER TABLE runtime.sync_second_sink ADD COLUMN sink text NOT NULL DEFAULT '';
