-- Work of agents in other languages: offered by the server that holds the task, taken, kept and settled through any server.

CREATE TABLE runtime.board_claims (
  claim_id uuid PRIMARY KEY,
  -- The idempotency key of the task: the same for every attempt.
  work text COLLATE "C" NOT NULL,
  agent text COLLATE "C" NOT NULL,
  org_id text NOT NULL,
  task json NOT NULL,
  -- The server that holds the task, and applies what becomes of it.
  server text NOT NULL,
  worker text,
  -- offered → claimed → settled (there are outputs) or failed; lost: the lease ended; withdrawn: it is not wanted any more.
  state text NOT NULL CHECK (state IN ('offered', 'claimed', 'settled', 'failed', 'lost', 'withdrawn')),
  -- Of an offer: how long its server stands by it. Of a claim: how long it is the worker's.
  lease_until timestamptz NOT NULL,
  claimed_at timestamptz,
  -- As text, so that a repeated settlement is recognised.
  settlement text,
  -- What the board made of it.
  outcome text CHECK (outcome IN ('done', 'retry', 'dead')),
  created_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 70);
-- One at a time: who gets the task of a server that died finds what its worker is about.
CREATE UNIQUE INDEX board_claims_open ON runtime.board_claims (work) WHERE state IN ('offered', 'claimed', 'settled') AND outcome IS NULL;
CREATE INDEX board_claims_offered ON runtime.board_claims (agent, claim_id) WHERE state = 'offered';
CREATE INDEX board_claims_failed ON runtime.board_claims (work) WHERE state = 'failed' AND outcome IS NULL;
CREATE INDEX board_claims_age ON runtime.board_claims (created_at);
