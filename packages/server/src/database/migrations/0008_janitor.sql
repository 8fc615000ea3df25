-- When the janitor last looked at a conversation's log.
ALTER TABLE runtime.conversations ADD COLUMN trimmed_at timestamptz;
-- Those that have changed since then come first, the rest in turn.
CREATE INDEX conversations_untrimmed ON runtime.conversations (trimmed_at NULLS FIRST)
  WHERE trimmed_at IS NULL OR trimmed_at < updated_at OR run_id IS NOT NULL;
CREATE INDEX conversations_trimmed ON runtime.conversations (trimmed_at);
