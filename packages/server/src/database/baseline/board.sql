-- The board on Postgres: artifacts, the queue of open tasks, dead letters.

-- Orders artifacts among each other, and tasks. Who writes many takes one number, and counts on from it.
CREATE SEQUENCE runtime.board_seq AS bigint INCREMENT BY 1048576;

-- Every version of every artifact. Partitioned by id, because ids of version 7 begin with their time: a day of finished
-- work is dropped as a table. Ids of any other kind are in the default partition.
CREATE TABLE runtime.board_artifacts (
  id uuid NOT NULL,
  version integer NOT NULL,
  seq bigint NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL,
  correlation_id text COLLATE "C",
  -- The agents that it was routed to, each as `agent`, or `agent/task` where the task has another id: with the row
  -- itself they are the lasting mark that these tasks were made. Null until it is routed.
  routes text[],
  -- The whole artifact as JSON. Text, since jsonb cannot hold every character that JSON can.
  body text NOT NULL,
  -- The age of what has an id without a time: the default partitions are cleaned by it.
  stored_at timestamptz NOT NULL DEFAULT now(),
  -- The ids of all first versions that are listed with this one, its own among them; empty if it is listed alone, null if
  -- it is listed with another. Identifiers hardly become smaller.
  run uuid[] DEFAULT '{}',
  PRIMARY KEY (id, version)
) PARTITION BY RANGE (id);
ALTER TABLE runtime.board_artifacts ALTER COLUMN run SET STORAGE EXTERNAL;
CREATE INDEX board_artifacts_recent ON runtime.board_artifacts (org_id, seq) WHERE run IS NOT NULL;
CREATE INDEX board_artifacts_correlation ON runtime.board_artifacts (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE TABLE runtime.board_artifacts_other PARTITION OF runtime.board_artifacts DEFAULT;
CREATE INDEX board_artifacts_other_age ON runtime.board_artifacts_other (stored_at);

-- What a process published that does not route.
CREATE TABLE runtime.board_unrouted (
  seq bigint PRIMARY KEY,
  id uuid NOT NULL,
  version integer NOT NULL
);

-- Tasks that were put before an agent without routing, with all that they hold. They stay after they are settled.
CREATE TABLE runtime.board_tasks (
  task_id uuid NOT NULL,
  agent text COLLATE "C" NOT NULL,
  replay_id text COLLATE "C" NOT NULL,
  correlation_id text COLLATE "C",
  body text NOT NULL,
  stored_at timestamptz NOT NULL DEFAULT now(),
  -- Of a batch: the body has all but the artifacts, which are where they are.
  artifact_ids uuid[],
  artifact_versions integer[],
  PRIMARY KEY (task_id, agent, replay_id)
) PARTITION BY RANGE (task_id);
ALTER TABLE runtime.board_tasks ALTER COLUMN artifact_ids SET STORAGE EXTERNAL;
CREATE INDEX board_tasks_correlation ON runtime.board_tasks (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE TABLE runtime.board_tasks_other PARTITION OF runtime.board_tasks DEFAULT;
CREATE INDEX board_tasks_other_age ON runtime.board_tasks_other (stored_at);

-- Open tasks, and nothing else: what is settled leaves.
CREATE TABLE runtime.board_queue (
  seq bigint PRIMARY KEY,
  agent text COLLATE "C" NOT NULL,
  -- What keeps it in order with others: its key, its partition, or nothing. Null too for the first version of an artifact
  -- whose key nothing but its later versions can share: one of those gives it the lane when it comes.
  lane text COLLATE "C",
  -- Whether it is the first of its lane. Only then it may be claimed.
  head boolean NOT NULL,
  -- From when on it may be claimed: at once, or after a delay.
  due_at timestamptz NOT NULL,
  claimed_by text COLLATE "C",
  -- Claims so far.
  attempt integer NOT NULL DEFAULT 0,
  task_id uuid NOT NULL,
  replay_id text COLLATE "C" NOT NULL DEFAULT '',
  -- The artifact that it is about; null where board_tasks has the task.
  artifact_id uuid,
  artifact_version integer,
  key text NOT NULL,
  correlation_id text COLLATE "C",
  -- Milliseconds.
  created_at bigint NOT NULL,
  -- When the lease of whoever has a task ends. In no index: a claim is an update that touches none, if the page has room.
  held_until timestamptz
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
  autovacuum_vacuum_insert_scale_factor = 0.2, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX board_queue_due ON runtime.board_queue (agent, due_at, seq) WHERE head;
CREATE UNIQUE INDEX board_queue_lane ON runtime.board_queue (agent, lane) WHERE head AND lane IS NOT NULL;
CREATE INDEX board_queue_behind ON runtime.board_queue (agent, lane, seq) WHERE NOT head;
CREATE INDEX board_queue_correlation ON runtime.board_queue (correlation_id) WHERE correlation_id IS NOT NULL;

-- Open tasks that nothing orders, many in one row. Each task is the first version of an artifact, has its id and no lane,
-- no replay and no correlation, and nobody has tried it before: else it is in board_queue. Who has the row has all tasks of
-- it, with the first attempt.
CREATE TABLE runtime.board_bundles (
  agent text COLLATE "C" NOT NULL,
  -- That of its first task when it was made.
  seq bigint NOT NULL,
  -- Of the open ones: how far each is from the first. Whoever is settled, or has a row of its own, is not there any more.
  ats integer[] NOT NULL,
  ids uuid[] NOT NULL,
  -- Keys that are hashes of the artifacts' types and ids, 16 bytes each; other keys are in the next column.
  own_keys bytea,
  keys text[],
  -- Milliseconds.
  created_at bigint NOT NULL,
  due_at timestamptz NOT NULL,
  claimed_by text COLLATE "C",
  held_until timestamptz,
  PRIMARY KEY (agent, seq)
) WITH (fillfactor = 50, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
  autovacuum_vacuum_cost_delay = 0);
ALTER TABLE runtime.board_bundles
  ALTER COLUMN ids SET STORAGE EXTERNAL, ALTER COLUMN own_keys SET STORAGE EXTERNAL, ALTER COLUMN keys SET STORAGE EXTERNAL;

-- What came for a batch and was not looked at yet. Whoever publishes only adds rows: it waits for nobody, and nobody for it.
CREATE TABLE runtime.board_arrivals (
  agent text COLLATE "C" NOT NULL,
  seq bigint NOT NULL DEFAULT nextval('runtime.board_seq'),
  org_id text COLLATE "C" NOT NULL,
  -- Of the batch.
  key text NOT NULL,
  members integer NOT NULL,
  ids uuid[] NOT NULL,
  versions integer[] NOT NULL,
  -- The bytes of each artifact.
  sizes integer[] NOT NULL,
  -- Null if none has one.
  correlations text[] COLLATE "C",
  -- Milliseconds.
  arrived_at bigint NOT NULL,
  PRIMARY KEY (agent, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
  toast_tuple_target = 8160);
ALTER TABLE runtime.board_arrivals ALTER COLUMN ids SET STORAGE EXTERNAL;
CREATE INDEX board_arrivals_correlation ON runtime.board_arrivals USING gin (correlations) WHERE correlations IS NOT NULL;

-- What was looked at and is not enough yet: one row for each batch. Only who has the agent's lock changes them.
CREATE TABLE runtime.board_batches (
  agent text COLLATE "C" NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  -- A key may be too long for an index.
  key_hash text COLLATE "C" NOT NULL,
  key text NOT NULL,
  ids uuid[] NOT NULL,
  versions integer[] NOT NULL,
  sizes integer[] NOT NULL,
  correlations text[] COLLATE "C",
  -- When the first one came, in milliseconds.
  arrived_at bigint NOT NULL,
  PRIMARY KEY (agent, org_id, key_hash)
);
ALTER TABLE runtime.board_batches ALTER COLUMN ids SET STORAGE EXTERNAL;
CREATE INDEX board_batches_age ON runtime.board_batches (agent, arrived_at);
CREATE INDEX board_batches_correlation ON runtime.board_batches USING gin (correlations) WHERE correlations IS NOT NULL;

CREATE TABLE runtime.board_dead_letters (
  agent text COLLATE "C" NOT NULL,
  id uuid NOT NULL,
  seq bigint NOT NULL DEFAULT nextval('runtime.board_seq'),
  task_id uuid NOT NULL,
  correlation_id text COLLATE "C",
  -- The last replay of its task.
  replay_id text,
  failed_at timestamptz NOT NULL DEFAULT now(),
  body text NOT NULL,
  PRIMARY KEY (agent, id)
);
CREATE INDEX board_dead_letters_newest ON runtime.board_dead_letters (agent, seq);
CREATE INDEX board_dead_letters_task ON runtime.board_dead_letters (task_id, agent);
CREATE INDEX board_dead_letters_correlation ON runtime.board_dead_letters (correlation_id, agent, seq)
  WHERE correlation_id IS NOT NULL;
CREATE INDEX board_dead_letters_age ON runtime.board_dead_letters (failed_at);
-- Without those that were replayed, which stay as long as the others.
CREATE INDEX board_dead_letters_open ON runtime.board_dead_letters (agent) WHERE replay_id IS NULL;
