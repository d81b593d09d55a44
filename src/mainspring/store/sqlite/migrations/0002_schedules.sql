-- A schedule decides when and whether; its action starts a run.
CREATE TABLE schedules (
  id           TEXT NOT NULL PRIMARY KEY,
  spec         TEXT NOT NULL,               -- JSON: when, as it was entered
  canonical    TEXT NOT NULL,               -- JSON: the same times in one form
  workflow     TEXT NOT NULL,               -- name of the function that is started
  action       TEXT NOT NULL,               -- JSON: how it is started
  input        TEXT NOT NULL,               -- JSON object of its arguments by name
  policy       TEXT NOT NULL,               -- JSON: overlap, catch-up and the rest, with defaults filled in
  attributes   TEXT NOT NULL DEFAULT '{}',  -- JSON object, for finding the schedule
  created      INTEGER NOT NULL,            -- all times are microseconds since 1970, UTC
  updated      INTEGER NOT NULL,            -- when its definition last changed
  revision     INTEGER NOT NULL DEFAULT 1,  -- grows with each change that somebody asked for
  cursor       INTEGER NOT NULL,            -- nominal time: everything up to here has a tick
  due          INTEGER NOT NULL,            -- when a scheduler has to look at it
  upcoming     INTEGER,                     -- the next nominal time
  paused       INTEGER NOT NULL DEFAULT 0,
  resume_at    INTEGER,                     -- when a pause ends by itself
  note         TEXT,                        -- why it is paused or not
  remaining    INTEGER,                     -- how many runs the clock may still start; NULL: any number
  stopped      TEXT,                        -- why it has no effect any more: no longer declared
  skips        TEXT NOT NULL DEFAULT '[]',  -- JSON list: nominal times that are to be left out
  app          TEXT,                        -- the app whose code declares it; NULL: made at run time
  version      TEXT,                        -- the version that declares it
  made_by      TEXT,                        -- the run and operation that made it, if a run did
  starts       INTEGER NOT NULL DEFAULT 0,  -- runs it has started
  missed       INTEGER NOT NULL DEFAULT 0,  -- ticks it has missed
  skipped      INTEGER NOT NULL DEFAULT 0,  -- ticks left out because of runs that were unfinished
  dropped      INTEGER NOT NULL DEFAULT 0,  -- ticks left out because the buffer was full
  failures     INTEGER NOT NULL DEFAULT 0,  -- runs that failed in a row
  last_result  TEXT,                        -- JSON: result of the run that succeeded last
  last_failure TEXT,                        -- JSON: exception of the last run, if it failed
  fault        TEXT                         -- why it could not be planned
);
CREATE INDEX schedules_due ON schedules (due);
CREATE INDEX schedules_upcoming ON schedules (upcoming) WHERE upcoming IS NOT NULL;
CREATE INDEX schedules_app ON schedules (app) WHERE app IS NOT NULL;

-- What became of each nominal time of a schedule.
CREATE TABLE ticks (
  schedule TEXT NOT NULL,
  nominal  INTEGER NOT NULL,
  request  TEXT NOT NULL DEFAULT '',        -- empty for the clock; else the trigger or backfill that asked for it
  source   TEXT NOT NULL CHECK (source IN ('clock', 'catchup', 'trigger', 'backfill')),
  due      INTEGER NOT NULL,                -- the time to act: nominal and jitter
  outcome  TEXT NOT NULL CHECK (outcome IN ('pending', 'buffered', 'fired', 'late', 'skipped_overlap',
             'skipped_by_request', 'missed', 'paused', 'dropped', 'replaced', 'start_failed')),
  reason   TEXT,                            -- in words
  acted    INTEGER,                         -- when that was decided
  run      TEXT,                            -- the run it started
  overlap  TEXT,                            -- the policy that was asked for, instead of the schedule's
  until    INTEGER,                         -- the row stands for all ticks from nominal to here …
  count    INTEGER NOT NULL DEFAULT 1,      -- … which are so many
  PRIMARY KEY (schedule, nominal, request)
) WITHOUT ROWID;
CREATE INDEX ticks_waiting ON ticks (schedule, due) WHERE outcome IN ('pending', 'buffered');

-- Stretches of time whose actions are being taken on request.
CREATE TABLE backfills (
  id        TEXT NOT NULL PRIMARY KEY,
  schedule  TEXT NOT NULL,
  since     INTEGER NOT NULL,               -- both ends belong to it
  until     INTEGER NOT NULL,
  overlap   TEXT NOT NULL,
  again     INTEGER NOT NULL DEFAULT 0,     -- also times that have a run already
  created   INTEGER NOT NULL,
  cursor    INTEGER NOT NULL,               -- nominal time: everything up to here is done with
  completed INTEGER,
  stopped   INTEGER NOT NULL DEFAULT 0,     -- somebody stopped it
  started   INTEGER NOT NULL DEFAULT 0,     -- ticks it has made
  skipped   INTEGER NOT NULL DEFAULT 0      -- times that had a run already
);
CREATE INDEX backfills_active ON backfills (schedule, id) WHERE completed IS NULL;

ALTER TABLE runs ADD COLUMN schedule TEXT;                          -- the schedule that started it
ALTER TABLE runs ADD COLUMN tick TEXT;                              -- JSON: which tick, and what there was to know at that time
ALTER TABLE runs ADD COLUMN unsettled INTEGER NOT NULL DEFAULT 0;   -- its schedule has not yet taken note of its end
CREATE INDEX runs_unsettled ON runs (schedule, uid) WHERE unsettled = 1;
CREATE INDEX runs_to_settle ON runs (completed) WHERE unsettled = 1 AND state IN ('succeeded', 'failed', 'cancelled');
