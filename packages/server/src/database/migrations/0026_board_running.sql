-- How many tasks of an agent run on each server, where the engine of the board knows only those of its own process. What
-- was told long ago is of a server that is gone.
CREATE TABLE runtime.board_running (
  server text COLLATE "C" NOT NULL,
  agent text COLLATE "C" NOT NULL,
  running integer NOT NULL,
  told_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (server, agent)
);
