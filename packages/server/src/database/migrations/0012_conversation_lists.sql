-- Conversations are listed, newest first: one's own by whoever talks, those of an org by whoever operates.

-- The first words of its first message.
ALTER TABLE runtime.conversations ADD COLUMN title text;
CREATE INDEX conversations_own ON runtime.conversations (org_id, owner, updated_at DESC, conv_id DESC);
CREATE INDEX conversations_org ON runtime.conversations (org_id, updated_at DESC, conv_id DESC);
