-- Ids are compared byte by byte (COLLATE "C"), as in Python and in SQLite, whatever language the database speaks.

-- Everything that executes is a run: one row, from the moment it is asked for.
CREATE TABLE runs (
  id           text COLLATE "C" NOT NULL PRIMARY KEY,  -- given by the caller, or equal to uid
  uid          text COLLATE "C" NOT NULL,              -- sorts by creation; never used twice, even when an id is
  workflow     text COLLATE "C" NOT NULL,              -- name of the function
  kind         text NOT NULL CHECK (kind IN ('workflow', 'step', 'transaction')),
  state        text NOT NULL CHECK (state IN
                 ('scheduled', 'queued', 'running', 'waiting', 'cancelling', 'succeeded', 'failed', 'cancelled')),
  reason       text,                                   -- why it was cancelled or failed, in words
  input        json NOT NULL,                          -- JSON object of the arguments by name
  output       json,                                   -- JSON of the result
  error        json,                                   -- JSON record of the exception
  due          bigint NOT NULL,                        -- earliest start; for a waiting run, when it is to be woken
  created      bigint NOT NULL,                        -- all times are microseconds since 1970, UTC
  started      bigint,                                 -- first claim
  completed    bigint,
  timeout      bigint,                                 -- microseconds from the first claim
  deadline     bigint,                                 -- its own or that of its parent, whichever is sooner
  owner        text COLLATE "C",                       -- the worker that has it in hand
  epoch        bigint NOT NULL DEFAULT 0,              -- number of claims: the fencing token
  poked        boolean NOT NULL DEFAULT false,         -- something happened to it that its owner has not looked at yet
  recoveries   bigint NOT NULL DEFAULT 0,              -- how often its worker was lost
  version      text,                                   -- version of the app that began it
  fingerprint  text NOT NULL DEFAULT '',               -- hash of its function's source when it began
  parent       text COLLATE "C",                       -- the run it is a child of: cancelled and timed out with it
  scheduled_by text COLLATE "C",                       -- the run that asked for it without being its parent
  attributes   jsonb NOT NULL DEFAULT '{}',            -- JSON object, for finding it
  stranded     json                                    -- JSON: why no worker can go on with it
);
CREATE UNIQUE INDEX runs_uid ON runs (uid);
CREATE INDEX runs_ready ON runs (due, uid) WHERE state = 'queued';
CREATE INDEX runs_due ON runs (due) WHERE owner IS NULL AND state IN ('scheduled', 'waiting');
CREATE INDEX runs_owner ON runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_poked ON runs (owner) WHERE poked;
CREATE INDEX runs_deadline ON runs (deadline)
  WHERE deadline IS NOT NULL AND owner IS NULL AND state IN ('scheduled', 'queued', 'waiting');
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;

-- What a run has done: one row per operation, at its position in the run.
CREATE TABLE steps (
  run       text COLLATE "C" NOT NULL,
  position  text COLLATE "C" NOT NULL,                 -- 0, 1, 2 …; t0.0 in the first task that the run created
  kind      text NOT NULL,                             -- step, sleep, start, call, result …
  name      text NOT NULL,
  seq       bigint,                                    -- the order in which outcomes were recorded
  output    json,                                      -- JSON of the result
  error     json,                                      -- JSON record of the exception
  started   bigint,
  completed bigint,                                    -- NULL: begun and not over
  attempts  bigint NOT NULL DEFAULT 0,
  epoch     bigint NOT NULL,                           -- the claim under which it was recorded
  child     text COLLATE "C",                          -- the run it started or waits for
  due       bigint,                                    -- when it is to be woken
  trail     json,                                      -- JSON list: what went wrong in earlier attempts
  PRIMARY KEY (run, position)
);
CREATE INDEX steps_waiting ON steps (child) WHERE completed IS NULL AND child IS NOT NULL;

-- The fleet.
CREATE TABLE workers (
  id        text COLLATE "C" NOT NULL PRIMARY KEY,
  host      text NOT NULL,
  boot      text NOT NULL,                             -- boot and pid namespace: where pid means something
  pid       bigint NOT NULL,
  pid_start bigint NOT NULL,
  version   text NOT NULL,
  functions jsonb NOT NULL,                            -- JSON object: name and fingerprint of what it executes
  started   bigint NOT NULL,
  beat      bigint NOT NULL DEFAULT 0,                 -- grows while it lives
  seen      bigint NOT NULL                            -- when it last grew
);

CREATE TABLE versions (
  version    text NOT NULL PRIMARY KEY,
  first_seen bigint NOT NULL
);
