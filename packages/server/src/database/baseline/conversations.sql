-- The conversations plane: conversations, their runs, and the log that holds their messages unless Redis does.

CREATE TABLE runtime.conversations (
  -- An id is unique within its org.
  org_id text COLLATE "C" NOT NULL,
  conv_id text COLLATE "C" NOT NULL,
  -- Distinguishes it from a deleted conversation of the same id, whose writers and engines may still be around. It is the
  -- time of its creation, in microseconds, so that it rises even when an older state of the database is restored.
  generation bigint NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  -- `chat:<conv_id>`, with a suffix when another org has that name.
  log_name text COLLATE "C" NOT NULL UNIQUE,
  owner text NOT NULL,
  -- The beginning of the first message.
  title text,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  -- Incremented whenever another server takes the conversation over: the log refuses writers with an older fence.
  fence bigint NOT NULL DEFAULT 0,
  -- The active run, the server that executes it, and when its lease ends. All three are null without an active run; a
  -- run that waits for a person has neither server nor lease.
  run_id text,
  holder text,
  lease_until timestamptz,
  -- Of the run under way, or else of the newest one that began; null before the first.
  run_status text,
  -- The number of queued runs.
  queued integer NOT NULL DEFAULT 0,
  -- The last message of the active branch; null without messages.
  leaf_id text,
  -- The end of the branch that sockets still show, until the log has the event of the change.
  announce_from text,
  -- Set while the log is being deleted. The row goes last, so that a new conversation never inherits old entries.
  removed_at timestamptz,
  -- When the janitor last checked the conversation's log.
  trimmed_at timestamptz,
  PRIMARY KEY (org_id, conv_id)
) WITH (fillfactor = 50);
-- Its condition names the indexed column, not run_id: otherwise statements that compare run_id could use this index and
-- read all leases instead of one row by its key.
CREATE INDEX conversations_leases ON runtime.conversations (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX conversations_waiting ON runtime.conversations (updated_at) WHERE run_id IS NULL AND queued > 0;
CREATE INDEX conversations_removed ON runtime.conversations (removed_at) WHERE removed_at IS NOT NULL;
CREATE INDEX conversations_idle ON runtime.conversations (updated_at) WHERE run_id IS NULL;
-- The janitor checks changed conversations first, then the others in turn.
CREATE INDEX conversations_untrimmed ON runtime.conversations (trimmed_at NULLS FIRST)
  WHERE trimmed_at IS NULL OR trimmed_at < updated_at OR run_id IS NOT NULL;
CREATE INDEX conversations_trimmed ON runtime.conversations (trimmed_at);
-- Lists, newest first: a person's own, and all of an org.
CREATE INDEX conversations_own ON runtime.conversations (org_id, owner, updated_at DESC, conv_id DESC);
CREATE INDEX conversations_own_status ON runtime.conversations (org_id, owner, run_status, updated_at DESC, conv_id DESC);
CREATE INDEX conversations_org ON runtime.conversations (org_id, updated_at DESC, conv_id DESC);

CREATE TABLE runtime.conversation_runs (
  run_id text COLLATE "C" PRIMARY KEY,
  org_id text COLLATE "C" NOT NULL,
  conv_id text COLLATE "C" NOT NULL,
  -- The conversation's owner, and who sent the message: a service may do so in the owner's place.
  subject text NOT NULL,
  sender text NOT NULL,
  status text NOT NULL CHECK (status IN ('queued', 'running', 'waiting', 'finished', 'failed', 'stopped')),
  idempotency_key text,
  -- Of what was sent with the key: a repeated key must come with the same content.
  content_hash text,
  -- The user's message, until the run starts: from then on runtime.messages has it.
  message text,
  message_id text NOT NULL,
  -- Its parts, when it is more than a text, and the settings of the turn. Both stay for a run that is resumed.
  parts jsonb,
  params jsonb,
  -- The message of which another answer is wanted: then message_id is its question, and not a new one.
  regenerate text,
  -- The message that this one is another version of.
  edit text,
  -- The end of the active branch before the run left it, to which a start that fails returns.
  former_leaf text,
  -- Tools that the client executes in this turn: openagents.conversation.v1.ClientTool.
  tools jsonb,
  fence bigint,
  -- The log that has its start, or its last resumption; null until then. Meanwhile nobody posts: messages are stored in the
  -- order of the log.
  epoch text,
  -- The log position before the run; null until its first entry is appended.
  cursor text,
  -- The order in the queue.
  place bigint NOT NULL DEFAULT 0,
  -- Why the run shall stop.
  stop_requested text,
  created_at timestamptz NOT NULL DEFAULT now(),
  started_at timestamptz,
  ended_at timestamptz,
  -- Why it failed: for the end user, and the id of the exception in the server's log.
  error text,
  error_code text,
  error_id text,
  -- The beginning of the exception, for operators.
  error_detail text,
  -- How often another server resumed it.
  resumed integer NOT NULL DEFAULT 0,
  -- W3C traceparent of the request.
  trace text,
  -- Whether the end of the run is in the event log.
  reported boolean NOT NULL DEFAULT false,
  FOREIGN KEY (org_id, conv_id) REFERENCES runtime.conversations ON DELETE CASCADE
) WITH (fillfactor = 70);
-- Both in one text, so that no other index qualifies for looking them up. A conv_id has no spaces.
CREATE UNIQUE INDEX conversation_runs_key ON runtime.conversation_runs ((conv_id || ' ' || idempotency_key), org_id)
  WHERE idempotency_key IS NOT NULL;
CREATE INDEX conversation_runs_newest ON runtime.conversation_runs (org_id, conv_id, run_id);
CREATE INDEX conversation_runs_queue ON runtime.conversation_runs (org_id, conv_id, place) WHERE status = 'queued';
-- Error ids rise with time: newest first, or one by its id.
CREATE INDEX conversation_runs_failed ON runtime.conversation_runs (org_id, error_id) WHERE error_id IS NOT NULL;
CREATE INDEX conversation_runs_unreported ON runtime.conversation_runs (ended_at) WHERE NOT reported AND ended_at IS NOT NULL;

-- The messages. They are the history; the log has what live readers still need.
CREATE TABLE runtime.messages (
  org_id text COLLATE "C" NOT NULL,
  conv_id text COLLATE "C" NOT NULL,
  message_id text COLLATE "C" NOT NULL,
  -- The message before it; null for the first. Messages with the same parent are branches.
  parent_id text COLLATE "C",
  role text NOT NULL CHECK (role IN ('user', 'assistant', 'system')),
  -- Who wrote it: a subject, or `agent:<name>`. Null when the engine did.
  author text,
  run_id text COLLATE "C",
  -- openagents.conversation.v1.Part, in order.
  parts jsonb NOT NULL,
  status text NOT NULL CHECK (status IN ('streaming', 'done', 'failed', 'stopped')),
  metadata jsonb,
  -- For search: the words of its texts and of the names of its files. Null while it grows.
  words tsvector,
  -- Its parts hold the events up to this position of the log. Null until the start of its run is in the log.
  log_epoch text,
  log_seq bigint,
  -- The time of that entry, in milliseconds: Redis finds a position by both.
  log_time bigint,
  created_at timestamptz NOT NULL DEFAULT now(),
  updated_at timestamptz NOT NULL DEFAULT now(),
  -- The order of messages with the same parent: an answer has the time of its question as created_at.
  inserted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (org_id, conv_id, message_id),
  FOREIGN KEY (org_id, conv_id) REFERENCES runtime.conversations ON DELETE CASCADE
);
-- The parent first: otherwise the planner may read all messages of a conversation in it instead of one by its key.
CREATE INDEX messages_children ON runtime.messages (parent_id, conv_id, org_id);
CREATE INDEX messages_words ON runtime.messages USING gin (words) WHERE words IS NOT NULL;
CREATE INDEX messages_of_run ON runtime.messages (org_id, run_id) WHERE run_id IS NOT NULL;

-- Tool calls that runs wait for, or have waited for: a person approves them, or a client executes them.
CREATE TABLE runtime.awaited_calls (
  org_id text COLLATE "C" NOT NULL,
  conv_id text COLLATE "C" NOT NULL,
  run_id text COLLATE "C" NOT NULL,
  tool_call_id text COLLATE "C" NOT NULL,
  message_id text COLLATE "C" NOT NULL,
  tool text NOT NULL,
  input jsonb,
  waits_for text NOT NULL CHECK (waits_for IN ('approval', 'output')),
  -- `withdrawn`: the run ended without a decision.
  state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'approved', 'denied', 'answered', 'withdrawn')),
  -- Of the decision: a repeated one must be the same.
  content_hash text,
  -- The log position before the decision.
  cursor text,
  decided_by text,
  decided_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (org_id, conv_id, run_id, tool_call_id),
  FOREIGN KEY (org_id, conv_id) REFERENCES runtime.conversations ON DELETE CASCADE
);
-- The org as an expression, so that it does not qualify for looking up one call.
CREATE INDEX awaited_calls_pending ON runtime.awaited_calls ((org_id || ''), created_at) WHERE state = 'pending';

-- Who may read or write a conversation besides its owner.
CREATE TABLE runtime.participants (
  org_id text COLLATE "C" NOT NULL,
  conv_id text COLLATE "C" NOT NULL,
  subject text NOT NULL,
  role text NOT NULL CHECK (role IN ('member', 'viewer')),
  added_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (org_id, conv_id, subject),
  FOREIGN KEY (org_id, conv_id) REFERENCES runtime.conversations ON DELETE CASCADE
);
-- Both in one text, so that it does not qualify for looking up one participant.
CREATE INDEX participants_of_subject ON runtime.participants ((subject || ' ' || org_id));

-- Files of messages. Their bytes are in file_chunks, or in a bucket under the key `<org_id>/<file_id>`.
CREATE TABLE runtime.files (
  org_id text COLLATE "C" NOT NULL,
  file_id text COLLATE "C" NOT NULL,
  conv_id text COLLATE "C" NOT NULL,
  -- Who uploaded it; null when a run made it.
  author text,
  name text NOT NULL,
  media_type text NOT NULL,
  size bigint NOT NULL,
  in_bucket boolean NOT NULL DEFAULT false,
  -- Null while its bytes arrive. The janitor removes files that were never completed.
  stored_at timestamptz,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (org_id, file_id),
  FOREIGN KEY (org_id, conv_id) REFERENCES runtime.conversations ON DELETE CASCADE
);
CREATE INDEX files_of_conversation ON runtime.files (org_id, conv_id);
CREATE INDEX files_incomplete ON runtime.files (created_at) WHERE stored_at IS NULL;

CREATE TABLE runtime.file_chunks (
  org_id text COLLATE "C" NOT NULL,
  file_id text COLLATE "C" NOT NULL,
  chunk integer NOT NULL,
  data bytea NOT NULL,
  PRIMARY KEY (org_id, file_id, chunk),
  FOREIGN KEY (org_id, file_id) REFERENCES runtime.files ON DELETE CASCADE
);
ALTER TABLE runtime.file_chunks ALTER COLUMN data SET STORAGE EXTERNAL;

-- Identifies the entries of one life of a stream. A stream that is created again after its end gets a new id, so its
-- writers never wait until the old entries are deleted.
CREATE SEQUENCE runtime.log_ids AS bigint;

-- One row per stream. Appends hold its lock until they commit: sequences are dense and become visible in commit order.
CREATE TABLE runtime.log_streams (
  stream text COLLATE "C" PRIMARY KEY,
  log_id bigint NOT NULL DEFAULT nextval('runtime.log_ids'),
  -- Of the conversation that the entries belong to: a late writer of a deleted one has a lower generation, and is refused.
  generation bigint NOT NULL DEFAULT 0,
  epoch text NOT NULL,
  seq bigint NOT NULL DEFAULT 0,
  -- The time of the newest entry, in milliseconds.
  time bigint NOT NULL DEFAULT 0,
  -- The sequence before the oldest kept entry.
  floor bigint NOT NULL DEFAULT 0,
  fence bigint,
  bytes bigint NOT NULL DEFAULT 0,
  -- The bookmark; null until somebody opens the stream.
  ui bigint,
  -- From then on the stream does not exist, whether its rows are deleted or not.
  expires_at timestamptz NOT NULL,
  -- When to check for expiry. It moves in steps of an eighth of the TTL, so that most appends leave the index alone.
  sweep_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 40);
CREATE INDEX log_streams_sweep ON runtime.log_streams (sweep_at);

CREATE TABLE runtime.log_entries (
  log_id bigint NOT NULL,
  seq bigint NOT NULL,
  time bigint NOT NULL,
  bytes integer NOT NULL,
  data text NOT NULL,
  PRIMARY KEY (log_id, seq)
);

-- Ids of deleted streams whose entries may still exist.
CREATE TABLE runtime.log_leftovers (log_id bigint PRIMARY KEY);
