-- The blackboard plane, on any backend: what waits for time, for other artifacts or for a person. See board.sql for the
-- tables of the board on Postgres.

-- Sent to the board as soon as it is due: a task to enqueue, or an artifact to publish. Deleted once that is done.
CREATE TABLE runtime.board_outbox (
  outbox_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind text NOT NULL CHECK (kind IN ('task', 'artifact')),
  -- Deduplicates: a task's idempotency key, or an artifact's id and version; either has the org.
  ref text COLLATE "C" NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  correlation_id text COLLATE "C",
  body json NOT NULL,
  -- When to send it. A sender postpones it first, so that another server retries should the sender die.
  due_at timestamptz NOT NULL,
  -- The time that the publisher asked for; null for rows that are only waiting to be sent.
  not_before timestamptz,
  UNIQUE (ref, kind)
) WITH (fillfactor = 70);
CREATE INDEX board_outbox_due ON runtime.board_outbox (due_at, outbox_id);
CREATE INDEX board_outbox_scheduled ON runtime.board_outbox (org_id, correlation_id, not_before) WHERE not_before IS NOT NULL;
CREATE INDEX board_outbox_correlation ON runtime.board_outbox (correlation_id, org_id) WHERE correlation_id IS NOT NULL;

-- Items that a loop of the board refused for good, with its error, until somebody retries or discards it; and what a
-- loop has failed to process several times, for as long as it goes on failing.
CREATE TABLE runtime.board_set_aside (
  item_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  loop text NOT NULL,
  -- A retry puts a task or an artifact into the outbox.
  kind text NOT NULL CHECK (kind IN ('task', 'artifact', 'failing')),
  ref text COLLATE "C" NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  correlation_id text COLLATE "C",
  -- The id of the task or the artifact, or the name of what is failing.
  item text NOT NULL,
  -- Of a task.
  agent text NOT NULL,
  -- The task or the artifact. Operators of JSON fail on a text with half a character, which records of others may have.
  body json,
  error text NOT NULL,
  failed_at timestamptz NOT NULL DEFAULT now(),
  UNIQUE (ref, org_id, kind)
);
CREATE INDEX board_set_aside_org ON runtime.board_set_aside (org_id, item_id);
CREATE INDEX board_set_aside_age ON runtime.board_set_aside (failed_at);

-- Artifacts that were added to a group once: they are not added again.
CREATE TABLE runtime.board_gathered (
  agent text COLLATE "C" NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  artifact_id text COLLATE "C" NOT NULL,
  version integer NOT NULL,
  seen_at timestamptz NOT NULL,
  PRIMARY KEY (artifact_id, org_id, agent, version)
);
CREATE INDEX board_gathered_age ON runtime.board_gathered (seen_at);

-- Unfinished batches and joins. A group is deleted once it is sent or dropped.
CREATE TABLE runtime.board_groups (
  group_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  agent text COLLATE "C" NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  key text NOT NULL,
  -- A key may be too long for an index.
  key_hash text COLLATE "C" NOT NULL,
  kind text NOT NULL CHECK (kind IN ('batch', 'join')),
  -- Of a join: the artifact types that have arrived.
  types text[] NOT NULL,
  members integer NOT NULL,
  bytes bigint NOT NULL,
  state text NOT NULL CHECK (state IN ('open', 'ready', 'dropped')),
  -- Open: the deadline. Otherwise: when another server finishes it, should the current one die.
  due_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX board_groups_open ON runtime.board_groups (agent, org_id, key_hash) WHERE state = 'open';
CREATE INDEX board_groups_due ON runtime.board_groups (due_at, group_id);

CREATE TABLE runtime.board_members (
  group_id bigint NOT NULL REFERENCES runtime.board_groups ON DELETE CASCADE,
  -- Of a join the artifact's type, of a batch its id and version.
  slot text COLLATE "C" NOT NULL,
  place integer NOT NULL,
  artifact_id text NOT NULL,
  version integer NOT NULL,
  artifact json NOT NULL,
  org_id text COLLATE "C",
  correlation_id text COLLATE "C",
  PRIMARY KEY (group_id, slot)
);
CREATE INDEX board_members_correlation ON runtime.board_members (correlation_id, org_id) WHERE correlation_id IS NOT NULL;

-- Tasks that wait for a person's decision, and the decisions.
CREATE TABLE runtime.board_approvals (
  approval_id text COLLATE "C" PRIMARY KEY,
  org_id text COLLATE "C" NOT NULL,
  agent text NOT NULL,
  correlation_id text COLLATE "C",
  task json NOT NULL,
  state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'approved', 'rejected')),
  created_at timestamptz NOT NULL,
  decided_at timestamptz,
  decided_by text,
  reason text
);
CREATE INDEX board_approvals_pending ON runtime.board_approvals (org_id, created_at) WHERE state = 'pending';
CREATE INDEX board_approvals_age ON runtime.board_approvals (decided_at) WHERE decided_at IS NOT NULL;
CREATE INDEX board_approvals_correlation ON runtime.board_approvals (correlation_id, org_id)
  WHERE state = 'pending' AND correlation_id IS NOT NULL;

-- Replays of dead letters.
CREATE TABLE runtime.board_replays (
  agent text COLLATE "C" NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  dead_letter_id text COLLATE "C" NOT NULL,
  replay_id text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (dead_letter_id, org_id, agent)
);
CREATE INDEX board_replays_age ON runtime.board_replays (created_at);

-- When each cron schedule last fired.
CREATE TABLE runtime.board_schedules (
  name text COLLATE "C" PRIMARY KEY,
  -- The pattern and time zone: after a change, missed times are not made up for.
  rule text NOT NULL,
  fired_at timestamptz NOT NULL
);

-- Pauses and cancellations, by agent (org_id is empty) or by correlation. A lifted one stays as inactive, so that the other
-- servers see the change.
CREATE TABLE runtime.board_controls (
  kind text NOT NULL CHECK (kind IN ('pause', 'cancel')),
  org_id text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  active boolean NOT NULL,
  changed bigint NOT NULL,
  changed_at timestamptz NOT NULL,
  -- Of a pause: the number of the change that began it. Tasks that return from it carry this number.
  since bigint NOT NULL DEFAULT 0,
  -- Its parked tasks are being sent back: it stays active until the last one has arrived.
  resuming boolean NOT NULL DEFAULT false,
  -- The server that sends them back. One at a time keeps their order.
  sender text COLLATE "C",
  sender_until timestamptz,
  PRIMARY KEY (name, org_id, kind)
);
CREATE INDEX board_controls_changed ON runtime.board_controls (changed);
CREATE INDEX board_controls_age ON runtime.board_controls (changed_at) WHERE kind = 'cancel' OR NOT active;

-- One row, locked by every change, so that changes become visible in the order of their numbers.
CREATE TABLE runtime.board_controls_version (
  version bigint NOT NULL
);
INSERT INTO runtime.board_controls_version VALUES (0);

-- Tasks of paused correlations, in the order in which they resume.
CREATE TABLE runtime.board_parked (
  place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- The task's idempotency key, which has the org, and is the same however often the task is paused.
  work text COLLATE "C" NOT NULL UNIQUE,
  org_id text COLLATE "C" NOT NULL,
  correlation_id text COLLATE "C" NOT NULL,
  task json NOT NULL,
  -- The last pause after which it was sent back. It keeps its place until it has arrived.
  sent bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE INDEX board_parked_correlation ON runtime.board_parked (correlation_id, org_id, place);

-- Tasks for remote workers: offered by the server that holds the task; claimed, extended and settled through any server.
CREATE TABLE runtime.board_claims (
  claim_id uuid PRIMARY KEY,
  -- The task's idempotency key, which has the org, and is the same for every attempt.
  work text COLLATE "C" NOT NULL,
  agent text COLLATE "C" NOT NULL,
  org_id text NOT NULL,
  -- Operators of JSON fail on a text with half a character, which records of others may have.
  task json NOT NULL,
  attempt integer NOT NULL,
  -- The server that holds the task and applies the settlement.
  server text NOT NULL,
  worker text,
  -- offered → claimed → settled (there are outputs) or failed; lost: the lease expired; withdrawn: no longer wanted.
  state text NOT NULL CHECK (state IN ('offered', 'claimed', 'settled', 'failed', 'lost', 'withdrawn')),
  -- Of an offer: how long it is valid. Of a claim: how long the worker holds it.
  lease_until timestamptz NOT NULL,
  claimed_at timestamptz,
  -- As text, to recognise a repeated settlement.
  settlement text,
  -- The board's final result.
  outcome text CHECK (outcome IN ('done', 'retry', 'dead')),
  created_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70);
-- One open claim per task: the server that takes over a dead server's task finds the worker's claim, or what came of it.
CREATE UNIQUE INDEX board_claims_open ON runtime.board_claims (work, org_id)
  WHERE state IN ('offered', 'claimed', 'settled', 'failed') AND outcome IS NULL;
CREATE INDEX board_claims_offered ON runtime.board_claims (agent, claim_id) WHERE state = 'offered';
CREATE INDEX board_claims_age ON runtime.board_claims (created_at);

-- Totals per agent and org across all servers since installation.
CREATE TABLE runtime.board_totals (
  agent text COLLATE "C" NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  done bigint NOT NULL,
  retried bigint NOT NULL,
  PRIMARY KEY (agent, org_id)
) WITH (fillfactor = 50);

-- Artifacts that agents published, by type, across all servers since installation.
CREATE TABLE runtime.board_outputs (
  agent text COLLATE "C" NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL,
  published bigint NOT NULL,
  PRIMARY KEY (agent, org_id, type)
) WITH (fillfactor = 50);

-- The number of the last report that each server added to the totals: a repeated report is added once.
CREATE TABLE runtime.board_totals_added (
  server text COLLATE "C" PRIMARY KEY,
  number bigint NOT NULL,
  added_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX board_totals_added_age ON runtime.board_totals_added (added_at);

-- Running tasks per agent and server, where the backend only knows those of its own process. An old row belongs to a server
-- that is gone.
CREATE TABLE runtime.board_running (
  server text COLLATE "C" NOT NULL,
  agent text COLLATE "C" NOT NULL,
  running integer NOT NULL,
  reported_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (server, agent)
);
