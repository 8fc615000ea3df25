-- Moves a checkpoint, or fails the transaction. Another position means that there is a second projector; another generation
-- means that the documents were rebuilt after this projector cached them.
CREATE FUNCTION runtime.advance_checkpoint(p_topic text, p_from bigint, p_to bigint, p_generation bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE runtime.sync_checkpoints SET position = p_to, updated_at = now()
  WHERE topic = p_topic AND position = p_from AND generation = p_generation;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the checkpoint of % is not at % of generation %', p_topic, p_from, p_generation USING ERRCODE = '40001';
  END IF;
END $$;
