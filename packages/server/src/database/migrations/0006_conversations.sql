-- Conversations and their runs. What is said is in the log, which may be elsewhere; who runs is decided here.

CREATE TABLE runtime.conversations (
  conv_id text COLLATE "C" PRIMARY KEY,
  org_id text NOT NULL,
  owner text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  -- Raised whenever somebody else takes the conversation: the log refuses whoever comes with an older one.
  fence bigint NOT NULL DEFAULT 0,
  -- The run that is under way, the server that has it, and until when it has it without saying so again.
  run_id text,
  holder text,
  lease_until timestamptz,
  -- How many runs wait.
  queued integer NOT NULL DEFAULT 0,
  -- Set while the log is being deleted; the row goes after it, so that nobody inherits what is left of it.
  removed_at timestamptz
) WITH (fillfactor = 50);
CREATE INDEX conversations_leases ON runtime.conversations (lease_until) WHERE run_id IS NOT NULL;
CREATE INDEX conversations_waiting ON runtime.conversations (updated_at) WHERE run_id IS NULL AND queued > 0;
CREATE INDEX conversations_removed ON runtime.conversations (removed_at) WHERE removed_at IS NOT NULL;
CREATE INDEX conversations_idle ON runtime.conversations (updated_at) WHERE run_id IS NULL;

CREATE TABLE runtime.conversation_runs (
  run_id text COLLATE "C" PRIMARY KEY,
  conv_id text COLLATE "C" NOT NULL REFERENCES runtime.conversations ON DELETE CASCADE,
  org_id text NOT NULL,
  subject text NOT NULL,
  status text NOT NULL CHECK (status IN ('queued', 'running', 'finished', 'failed', 'stopped')),
  idempotency_key text,
  -- What was said, until it is answered: from then on it is in the log alone.
  message text,
  message_id text NOT NULL,
  fence bigint,
  epoch text,
  -- The position before the run in the log; null until its beginning is there.
  cursor text,
  -- The order in the queue.
  place bigint NOT NULL DEFAULT 0,
  -- Why it is to be stopped.
  stop_requested text,
  created_at timestamptz NOT NULL DEFAULT now(),
  started_at timestamptz,
  ended_at timestamptz,
  error text,
  -- W3C traceparent of the request.
  trace text,
  -- Whether the authority log knows that it ended.
  told boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);
-- The key comes first, so that no other index can look it up.
CREATE UNIQUE INDEX conversation_runs_key ON runtime.conversation_runs (idempotency_key, conv_id)
  WHERE idempotency_key IS NOT NULL;
CREATE INDEX conversation_runs_newest ON runtime.conversation_runs (conv_id, run_id);
CREATE INDEX conversation_runs_queue ON runtime.conversation_runs (conv_id, place) WHERE status = 'queued';
CREATE INDEX conversation_runs_untold ON runtime.conversation_runs (ended_at) WHERE NOT told AND ended_at IS NOT NULL;
