-- A schedule decides when and whether; its action starts a run.
CREATE TABLE schedules (
  id           text COLLATE "C" NOT NULL PRIMARY KEY,
  spec         json NOT NULL,                        -- JSON: when, as it was entered
  canonical    json NOT NULL,                        -- JSON: the same times in one form
  workflow     text COLLATE "C" NOT NULL,            -- name of the function that is started
  action       json NOT NULL,                        -- JSON: how it is started
  input        json NOT NULL,                        -- JSON object of its arguments by name
  policy       json NOT NULL,                        -- JSON: overlap, catch-up and the rest, with defaults filled in
  attributes   jsonb NOT NULL DEFAULT '{}',          -- JSON object, for finding the schedule
  created      bigint NOT NULL,                      -- all times are microseconds since 1970, UTC
  updated      bigint NOT NULL,                      -- when its definition last changed
  revision     bigint NOT NULL DEFAULT 1,            -- grows with each change that somebody asked for
  cursor       bigint NOT NULL,                      -- nominal time: everything up to here has a tick
  due          bigint NOT NULL,                      -- when a scheduler has to look at it
  upcoming     bigint,                               -- the next nominal time
  paused       boolean NOT NULL DEFAULT false,
  resume_at    bigint,                               -- when a pause ends by itself
  note         text,                                 -- why it is paused or not
  remaining    bigint,                               -- how many runs the clock may still start; NULL: any number
  stopped      text,                                 -- why it has no effect any more: no longer declared
  skips        json NOT NULL DEFAULT '[]',           -- JSON list: nominal times that are to be left out
  app          text COLLATE "C",                     -- the app whose code declares it; NULL: made at run time
  version      text,                                 -- the version that declares it
  made_by      text,                                 -- the run and operation that made it, if a run did
  starts       bigint NOT NULL DEFAULT 0,            -- runs it has started
  missed       bigint NOT NULL DEFAULT 0,            -- ticks it has missed
  skipped      bigint NOT NULL DEFAULT 0,            -- ticks left out because of runs that were unfinished
  dropped      bigint NOT NULL DEFAULT 0,            -- ticks left out because the buffer was full
  failures     bigint NOT NULL DEFAULT 0,            -- runs that failed in a row
  last_result  json,                                 -- JSON: result of the run that succeeded last
  last_failure json,                                 -- JSON: exception of the last run, if it failed
  fault        text                                  -- why it could not be planned
);
CREATE INDEX schedules_due ON schedules (due);
CREATE INDEX schedules_upcoming ON schedules (upcoming) WHERE upcoming IS NOT NULL;
CREATE INDEX schedules_app ON schedules (app) WHERE app IS NOT NULL;

-- What became of each nominal time of a schedule.
CREATE TABLE ticks (
  schedule text COLLATE "C" NOT NULL,
  nominal  bigint NOT NULL,
  request  text COLLATE "C" NOT NULL DEFAULT '',     -- empty for the clock; else the trigger or backfill that asked for it
  source   text NOT NULL CHECK (source IN ('clock', 'catchup', 'trigger', 'backfill')),
  due      bigint NOT NULL,                          -- the time to act: nominal and jitter
  outcome  text NOT NULL CHECK (outcome IN ('pending', 'buffered', 'fired', 'late', 'skipped_overlap',
             'skipped_by_request', 'missed', 'paused', 'dropped', 'replaced', 'start_failed')),
  reason   text,                                     -- in words
  acted    bigint,                                   -- when that was decided
  run      text COLLATE "C",                         -- the run it started
  overlap  text,                                     -- the policy that was asked for, instead of the schedule's
  until    bigint,                                   -- the row stands for all ticks from nominal to here …
  count    bigint NOT NULL DEFAULT 1,                -- … which are so many
  PRIMARY KEY (schedule, nominal, request)
);
CREATE INDEX ticks_waiting ON ticks (schedule, due) WHERE outcome IN ('pending', 'buffered');

-- Stretches of time whose actions are being taken on request.
CREATE TABLE backfills (
  id        text COLLATE "C" NOT NULL PRIMARY KEY,
  schedule  text COLLATE "C" NOT NULL,
  since     bigint NOT NULL,                         -- both ends belong to it
  until     bigint NOT NULL,
  overlap   text NOT NULL,
  again     boolean NOT NULL DEFAULT false,          -- also times that have a run already
  created   bigint NOT NULL,
  cursor    bigint NOT NULL,                         -- nominal time: everything up to here is done with
  completed bigint,
  stopped   boolean NOT NULL DEFAULT false,          -- somebody stopped it
  started   bigint NOT NULL DEFAULT 0,               -- ticks it has made
  skipped   bigint NOT NULL DEFAULT 0                -- times that had a run already
);
CREATE INDEX backfills_active ON backfills (schedule, id) WHERE completed IS NULL;

ALTER TABLE runs ADD COLUMN schedule text COLLATE "C";                   -- the schedule that started it
ALTER TABLE runs ADD COLUMN tick json;                                   -- JSON: which tick, and what there was to know at that time
ALTER TABLE runs ADD COLUMN unsettled boolean NOT NULL DEFAULT false;    -- its schedule has not yet taken note of its end
CREATE INDEX runs_unsettled ON runs (schedule, uid) WHERE unsettled;
CREATE INDEX runs_to_settle ON runs (completed) WHERE unsettled AND state IN ('succeeded', 'failed', 'cancelled');
