-- The board on Postgres: artifacts, one row for each open task, and dead letters (ADR-0066).

-- Orders artifacts, tasks and dead letters. A call takes one number and counts its rows up from there.
CREATE SEQUENCE runtime.board_seq AS bigint INCREMENT BY 1048576;

-- Every version of every artifact, until the retention is over.
CREATE TABLE runtime.board_artifacts (
  id uuid NOT NULL,
  version integer NOT NULL,
  seq bigint NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL,
  correlation_id text COLLATE "C",
  -- The agents it was routed to: `agent`, or `agent/task` where the task has an id of its own.
  -- This is what remembers the task after it is settled and its row is gone.
  routes text[] NOT NULL,
  stored_at timestamptz NOT NULL DEFAULT now(),
  -- The whole artifact as JSON. Text, since jsonb cannot hold every character that JSON can.
  body text NOT NULL,
  -- The id is first: new ones are written at the end of the index, for every org.
  PRIMARY KEY (id, org_id, version)
);
CREATE INDEX board_artifacts_recent ON runtime.board_artifacts (org_id, seq);
CREATE INDEX board_artifacts_correlation ON runtime.board_artifacts (org_id, correlation_id, seq)
  WHERE correlation_id IS NOT NULL;
-- Rows are written in the order of time, and only retention asks for it: a BRIN index costs an insert nothing.
CREATE INDEX board_artifacts_age ON runtime.board_artifacts USING brin (stored_at);

-- Open tasks and nothing else: a settled task is deleted.
CREATE TABLE runtime.board_tasks (
  seq bigint PRIMARY KEY,
  agent text COLLATE "C" NOT NULL,
  -- Tasks of a lane of an org run one after the other, in the order of seq: a key or a partition. Empty: nothing orders it.
  lane text COLLATE "C" NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  -- It is the first of its lane, or has none. Only ready tasks are claimed.
  ready boolean NOT NULL,
  due_at timestamptz NOT NULL,
  attempt integer NOT NULL DEFAULT 0,
  claimed_by text COLLATE "C",
  held_until timestamptz,
  task_id uuid NOT NULL,
  key text COLLATE "C" NOT NULL,
  -- The artifact, or the first of several.
  artifact_id uuid NOT NULL,
  artifact_version integer NOT NULL,
  created_at bigint NOT NULL,
  -- The whole task as JSON if it was enqueued; null if it was routed, and the artifact says all.
  body text
) WITH (
  -- A claim updates the row and no indexed column: with room on the page that touches no index (HOT).
  fillfactor = 50,
  -- Every row is deleted soon. A claim walks over what vacuum has not removed, so it must not wait for a fifth of a peak.
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0
);
-- A claim goes from org to org, and through the tasks of each.
CREATE INDEX board_tasks_due ON runtime.board_tasks (agent, org_id, due_at, seq) WHERE ready;
-- The next of a lane, whether a lane is empty, and how many tasks an agent has, of an org or of all.
CREATE INDEX board_tasks_lane ON runtime.board_tasks (agent, org_id, lane, seq);
CREATE INDEX board_tasks_artifact ON runtime.board_tasks (artifact_id, org_id);

-- Tasks that were enqueued without routing, open or settled: the same one is not enqueued twice.
CREATE TABLE runtime.board_enqueued (
  task_id uuid NOT NULL,
  agent text COLLATE "C" NOT NULL,
  replay_id text COLLATE "C" NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  correlation_id text COLLATE "C",
  stored_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (task_id, org_id, agent, replay_id)
);
CREATE INDEX board_enqueued_correlation ON runtime.board_enqueued (org_id, correlation_id)
  WHERE correlation_id IS NOT NULL;
CREATE INDEX board_enqueued_age ON runtime.board_enqueued USING brin (stored_at);

CREATE TABLE runtime.board_dead_letters (
  agent text COLLATE "C" NOT NULL,
  id uuid NOT NULL,
  seq bigint NOT NULL,
  task_id uuid NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  correlation_id text COLLATE "C",
  -- The last replay of its task.
  replay_id text,
  failed_at timestamptz NOT NULL DEFAULT now(),
  body text NOT NULL,
  PRIMARY KEY (agent, org_id, id)
);
CREATE INDEX board_dead_letters_newest ON runtime.board_dead_letters (agent, org_id, seq);
CREATE INDEX board_dead_letters_open ON runtime.board_dead_letters (agent, org_id) WHERE replay_id IS NULL;
CREATE INDEX board_dead_letters_task ON runtime.board_dead_letters (task_id, org_id, agent);
CREATE INDEX board_dead_letters_correlation ON runtime.board_dead_letters (org_id, correlation_id, agent, seq)
  WHERE correlation_id IS NOT NULL;
CREATE INDEX board_dead_letters_age ON runtime.board_dead_letters (failed_at);
