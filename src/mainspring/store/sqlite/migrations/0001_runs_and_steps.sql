-- Everything that executes is a run: one row, from the moment it is asked for.
CREATE TABLE runs (
  id           TEXT NOT NULL PRIMARY KEY,   -- given by the caller, or equal to uid
  uid          TEXT NOT NULL,               -- sorts by creation; never used twice, even when an id is
  workflow     TEXT NOT NULL,               -- name of the function
  kind         TEXT NOT NULL CHECK (kind IN ('workflow', 'step', 'transaction')),
  state        TEXT NOT NULL CHECK (state IN
                 ('scheduled', 'queued', 'running', 'waiting', 'cancelling', 'succeeded', 'failed', 'cancelled')),
  reason       TEXT,                        -- why it was cancelled or failed, in words
  input        TEXT NOT NULL,               -- JSON object of the arguments by name
  output       TEXT,                        -- JSON of the result
  error        TEXT,                        -- JSON record of the exception
  due          INTEGER NOT NULL,            -- earliest start; for a waiting run, when it is to be woken
  created      INTEGER NOT NULL,            -- all times are microseconds since 1970, UTC
  started      INTEGER,                     -- first claim
  completed    INTEGER,
  timeout      INTEGER,                     -- microseconds from the first claim
  deadline     INTEGER,                     -- its own or that of its parent, whichever is sooner
  owner        TEXT,                        -- the worker that has it in hand
  epoch        INTEGER NOT NULL DEFAULT 0,  -- number of claims: the fencing token
  poked        INTEGER NOT NULL DEFAULT 0,  -- something happened to it that its owner has not looked at yet
  recoveries   INTEGER NOT NULL DEFAULT 0,  -- how often its worker was lost
  version      TEXT,                        -- version of the app that began it
  fingerprint  TEXT NOT NULL DEFAULT '',    -- hash of its function's source when it began
  parent       TEXT,                        -- the run it is a child of: cancelled and timed out with it
  scheduled_by TEXT,                        -- the run that asked for it without being its parent
  attributes   TEXT NOT NULL DEFAULT '{}',  -- JSON object, for finding it
  stranded     TEXT                         -- JSON: why no worker can go on with it
);
CREATE UNIQUE INDEX runs_uid ON runs (uid);
CREATE INDEX runs_ready ON runs (due, uid) WHERE state = 'queued';
CREATE INDEX runs_due ON runs (due) WHERE owner IS NULL AND state IN ('scheduled', 'waiting');
CREATE INDEX runs_owner ON runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_poked ON runs (owner) WHERE poked = 1;
CREATE INDEX runs_deadline ON runs (deadline)
  WHERE deadline IS NOT NULL AND owner IS NULL AND state IN ('scheduled', 'queued', 'waiting');
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;

-- What a run has done: one row per operation, at its position in the run.
CREATE TABLE steps (
  run       TEXT NOT NULL,
  position  TEXT NOT NULL,                  -- 0, 1, 2 …; t0.0 in the first task that the run created
  kind      TEXT NOT NULL,                  -- step, sleep, start, call, result …
  name      TEXT NOT NULL,
  seq       INTEGER,                        -- the order in which outcomes were recorded
  output    TEXT,                           -- JSON of the result
  error     TEXT,                           -- JSON record of the exception
  started   INTEGER,
  completed INTEGER,                        -- NULL: begun and not over
  attempts  INTEGER NOT NULL DEFAULT 0,
  epoch     INTEGER NOT NULL,               -- the claim under which it was recorded
  child     TEXT,                           -- the run it started or waits for
  due       INTEGER,                        -- when it is to be woken
  trail     TEXT,                           -- JSON list: what went wrong in earlier attempts
  PRIMARY KEY (run, position)
) WITHOUT ROWID;
CREATE INDEX steps_waiting ON steps (child) WHERE completed IS NULL AND child IS NOT NULL;

-- The fleet.
CREATE TABLE workers (
  id        TEXT NOT NULL PRIMARY KEY,
  host      TEXT NOT NULL,
  boot      TEXT NOT NULL,                  -- boot and pid namespace: where pid means something
  pid       INTEGER NOT NULL,
  pid_start INTEGER NOT NULL,
  version   TEXT NOT NULL,
  functions TEXT NOT NULL,                  -- JSON object: name and fingerprint of what it executes
  started   INTEGER NOT NULL,
  beat      INTEGER NOT NULL DEFAULT 0,     -- grows while it lives
  seen      INTEGER NOT NULL                -- when it last grew
);

CREATE TABLE versions (
  version    TEXT NOT NULL PRIMARY KEY,
  first_seen INTEGER NOT NULL
);
