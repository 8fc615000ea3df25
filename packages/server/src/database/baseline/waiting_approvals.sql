-- Approvals that began or ended to wait, or whose readers changed, until the topic `approvals` shows that. The tables' triggers
-- insert them in the transaction of the change, whichever statement makes it.
CREATE TABLE runtime.approval_changes (
  -- Random: a restore copies these rows, and fires the triggers of the other tables.
  change_id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  org_id text COLLATE "C" NOT NULL,
  -- A task of the board, or a tool call; a conversation alone: all of its calls.
  approval_id text COLLATE "C",
  conv_id text COLLATE "C",
  tool_call_id text COLLATE "C",
  -- While a server reports it, and until it is tried again.
  claimed_until timestamptz
);

CREATE FUNCTION runtime.note_approval_change() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  changed record := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
BEGIN
  CASE TG_TABLE_NAME
    WHEN 'board_approvals' THEN
      INSERT INTO runtime.approval_changes (org_id, approval_id) VALUES (changed.org_id, changed.approval_id);
    WHEN 'awaited_calls' THEN
      INSERT INTO runtime.approval_changes (org_id, conv_id, tool_call_id)
      VALUES (changed.org_id, changed.conv_id, changed.tool_call_id);
    ELSE
      INSERT INTO runtime.approval_changes (org_id, conv_id) VALUES (changed.org_id, changed.conv_id);
  END CASE;
  -- From nobody, so that every server gets it, also the one that made the change.
  PERFORM pg_notify('khala_wakeups', E'\napproval_changes');
  RETURN NULL;
END
$$;

CREATE TRIGGER approval_changed AFTER INSERT OR UPDATE OF state ON runtime.board_approvals
  FOR EACH ROW EXECUTE FUNCTION runtime.note_approval_change();
-- Retention deletes decided ones.
CREATE TRIGGER approval_deleted AFTER DELETE ON runtime.board_approvals
  FOR EACH ROW WHEN (OLD.state = 'pending') EXECUTE FUNCTION runtime.note_approval_change();
CREATE TRIGGER approval_changed AFTER INSERT OR UPDATE OF state ON runtime.awaited_calls
  FOR EACH ROW EXECUTE FUNCTION runtime.note_approval_change();
CREATE TRIGGER approval_deleted AFTER DELETE ON runtime.awaited_calls
  FOR EACH ROW WHEN (OLD.state = 'pending') EXECUTE FUNCTION runtime.note_approval_change();
CREATE TRIGGER approval_readers_changed AFTER INSERT OR UPDATE OR DELETE ON runtime.participants
  FOR EACH ROW EXECUTE FUNCTION runtime.note_approval_change();
