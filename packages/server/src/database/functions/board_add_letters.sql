-- Adds dead letters: those of the router, or those of settled tasks whose numbers are in p_settled.
CREATE OR REPLACE FUNCTION runtime.board_add_letters(p_letters json, p_settled bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO runtime.board_dead_letters (agent, id, seq, task_id, org_id, correlation_id, body)
  SELECT l.agent, l.id, nextval('runtime.board_seq'), l.task, l.org, l.correlation, l.body
  FROM json_to_recordset(p_letters) AS l(
    seq bigint, agent text, id uuid, task uuid, org text, correlation text, body text
  )
  WHERE CASE WHEN p_settled IS NULL THEN l.seq IS NULL ELSE l.seq = ANY (p_settled) END
  ON CONFLICT DO NOTHING;
END $$;
