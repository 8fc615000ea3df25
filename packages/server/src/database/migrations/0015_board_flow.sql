-- Pauses of correlations, what correlations wait for, and what agents have done on all servers.

-- A pause of a correlation has its org, that of an agent has none; so with cancellations.
ALTER TABLE runtime.board_controls
  -- Of a pause: the number of the change that began it. Tasks that come back from it bear this number.
  ADD COLUMN since bigint NOT NULL DEFAULT 0,
  -- Its tasks go back to the board, one after the other: until the last is there it is still active.
  ADD COLUMN resuming boolean NOT NULL DEFAULT false,
  -- Who sends them: one at a time, so that they keep their order.
  ADD COLUMN sender text COLLATE "C",
  ADD COLUMN sender_until timestamptz;

-- Tasks of correlations that are paused, in the order in which they go on.
CREATE TABLE runtime.board_parked (
  place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- The idempotency key: the same however often a task is paused.
  work text COLLATE "C" NOT NULL UNIQUE,
  org_id text COLLATE "C" NOT NULL,
  correlation_id text COLLATE "C" NOT NULL,
  task json NOT NULL,
  -- The last pause from which it was sent back. It keeps its place until it has come.
  sent bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE INDEX board_parked_correlation ON runtime.board_parked (correlation_id, org_id, place);

-- What waits of a correlation is found by it.
ALTER TABLE runtime.board_approvals ADD COLUMN correlation_id text COLLATE "C";
CREATE INDEX board_approvals_correlation ON runtime.board_approvals (correlation_id, org_id)
  WHERE state = 'pending' AND correlation_id IS NOT NULL;
ALTER TABLE runtime.board_members
  ADD COLUMN org_id text COLLATE "C",
  ADD COLUMN correlation_id text COLLATE "C";
CREATE INDEX board_members_correlation ON runtime.board_members (correlation_id, org_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX board_outbox_correlation ON runtime.board_outbox (correlation_id, org_id) WHERE correlation_id IS NOT NULL;
-- Of what waits already. JSON with a NUL in it cannot be looked into.
UPDATE runtime.board_approvals SET correlation_id = task #>> '{artifacts,0,correlation_id}'
WHERE state = 'pending' AND strpos(task::text, '\u0000') = 0;
UPDATE runtime.board_members SET org_id = artifact ->> 'org_id', correlation_id = artifact ->> 'correlation_id'
WHERE strpos(artifact::text, '\u0000') = 0;

-- What was done of each agent's tasks, by all servers since there are such counts.
CREATE TABLE runtime.board_totals (
  agent text COLLATE "C" PRIMARY KEY,
  done bigint NOT NULL,
  retried bigint NOT NULL
) WITH (fillfactor = 50);
-- The number of the last counts that each server told of: the same ones are added once.
CREATE TABLE runtime.board_totals_told (
  server text COLLATE "C" PRIMARY KEY,
  number bigint NOT NULL,
  told_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX board_totals_told_age ON runtime.board_totals_told (told_at);
