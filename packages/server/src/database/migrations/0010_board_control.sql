-- Control of the board: what waits for time, for other artifacts or for a person. The flow itself is on the engine.

-- What goes back to the board: a task that is enqueued, an artifact that is published. The row goes once that is done.
CREATE TABLE runtime.board_outbox (
  outbox_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind text NOT NULL CHECK (kind IN ('task', 'artifact')),
  -- What makes two of them the same: an idempotency key, or an artifact's id and version.
  ref text COLLATE "C" NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  correlation_id text COLLATE "C",
  body json NOT NULL,
  -- When it is sent; whoever is at it puts it off, so that another sends it should that one die.
  due_at timestamptz NOT NULL,
  -- When the publisher wants it; null for what only waits to be sent.
  not_before timestamptz,
  UNIQUE (ref, kind)
) WITH (fillfactor = 70);
CREATE INDEX board_outbox_due ON runtime.board_outbox (due_at, outbox_id);
CREATE INDEX board_outbox_scheduled ON runtime.board_outbox (org_id, correlation_id, not_before) WHERE not_before IS NOT NULL;

-- What was gathered once is not gathered again.
CREATE TABLE runtime.board_gathered (
  agent text COLLATE "C" NOT NULL,
  artifact_id text COLLATE "C" NOT NULL,
  version integer NOT NULL,
  seen_at timestamptz NOT NULL,
  PRIMARY KEY (artifact_id, agent, version)
);
CREATE INDEX board_gathered_age ON runtime.board_gathered (seen_at);

-- Batches and joins under way. A group that was sent or dropped is gone.
CREATE TABLE runtime.board_groups (
  group_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  agent text COLLATE "C" NOT NULL,
  org_id text COLLATE "C" NOT NULL,
  key text NOT NULL,
  -- A key may be too long for an index.
  key_hash text COLLATE "C" NOT NULL,
  kind text NOT NULL CHECK (kind IN ('batch', 'join')),
  -- Of a join: the types that are there.
  types text[] NOT NULL,
  members integer NOT NULL,
  bytes bigint NOT NULL,
  state text NOT NULL CHECK (state IN ('open', 'ready', 'dropped')),
  -- Open: when time is up. Else: when somebody finishes it, should the one that is at it die.
  due_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX board_groups_open ON runtime.board_groups (agent, org_id, key_hash) WHERE state = 'open';
CREATE INDEX board_groups_due ON runtime.board_groups (due_at, group_id);

CREATE TABLE runtime.board_members (
  group_id bigint NOT NULL REFERENCES runtime.board_groups ON DELETE CASCADE,
  -- Of a join its type, of a batch its id and version.
  slot text COLLATE "C" NOT NULL,
  place integer NOT NULL,
  artifact_id text NOT NULL,
  version integer NOT NULL,
  artifact json NOT NULL,
  PRIMARY KEY (group_id, slot)
);

CREATE TABLE runtime.board_approvals (
  approval_id text COLLATE "C" PRIMARY KEY,
  org_id text COLLATE "C" NOT NULL,
  agent text NOT NULL,
  task json NOT NULL,
  state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'approved', 'rejected')),
  created_at timestamptz NOT NULL,
  decided_at timestamptz,
  decided_by text,
  reason text
);
CREATE INDEX board_approvals_pending ON runtime.board_approvals (org_id, created_at) WHERE state = 'pending';
CREATE INDEX board_approvals_age ON runtime.board_approvals (decided_at) WHERE decided_at IS NOT NULL;

CREATE TABLE runtime.board_replays (
  agent text COLLATE "C" NOT NULL,
  dead_letter_id text COLLATE "C" NOT NULL,
  replay_id text NOT NULL,
  created_at timestamptz NOT NULL,
  PRIMARY KEY (dead_letter_id, agent)
);
CREATE INDEX board_replays_age ON runtime.board_replays (created_at);

CREATE TABLE runtime.board_schedules (
  name text COLLATE "C" PRIMARY KEY,
  -- The pattern and time zone: when they change, nothing is made up for.
  rule text NOT NULL,
  fired_at timestamptz NOT NULL
);

-- Pauses by agent (org_id is empty) and cancellations by correlation. What is lifted stays as inactive, so that others see it.
CREATE TABLE runtime.board_controls (
  kind text NOT NULL CHECK (kind IN ('pause', 'cancel')),
  org_id text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  active boolean NOT NULL,
  changed bigint NOT NULL,
  changed_at timestamptz NOT NULL,
  PRIMARY KEY (name, org_id, kind)
);
CREATE INDEX board_controls_changed ON runtime.board_controls (changed);
CREATE INDEX board_controls_age ON runtime.board_controls (changed_at) WHERE kind = 'cancel' OR NOT active;
-- One row, which every change locks: so changes become visible in the order of their numbers.
CREATE TABLE runtime.board_controls_version (
  version bigint NOT NULL
);
INSERT INTO runtime.board_controls_version VALUES (0);
