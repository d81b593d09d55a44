-- Where runs come from when they are not new, and how far they have come.
ALTER TABLE runs ADD COLUMN forked_from TEXT;                        -- the run it was forked from
ALTER TABLE runs ADD COLUMN forked_at TEXT;                          -- the first operation that was not copied; NULL: from the beginning
ALTER TABLE runs ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;   -- how often it began anew with continue_as
ALTER TABLE runs ADD COLUMN stopping TEXT;                           -- why it was stopped; it has yet to undo what it did
CREATE INDEX runs_forked ON runs (forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX runs_failed ON runs (uid) WHERE state IN ('failed', 'cancelled');
CREATE INDEX runs_of_schedule ON runs (schedule, uid) WHERE schedule IS NOT NULL;
CREATE INDEX runs_stranded ON runs (uid) WHERE stranded IS NOT NULL;
CREATE INDEX steps_undo ON steps (run) WHERE kind = 'undo';

-- What was logged inside runs, where that is kept.
CREATE TABLE logs (
  number   INTEGER NOT NULL PRIMARY KEY,    -- in the order in which they were stored
  run      TEXT NOT NULL,
  at       INTEGER NOT NULL,
  level    TEXT NOT NULL,
  logger   TEXT NOT NULL,
  message  TEXT NOT NULL,
  step     TEXT,                            -- the name of the step it was logged in
  position TEXT,                            -- the operation it was logged in
  attempt  INTEGER,                         -- of that step
  worker   TEXT                             -- the worker that had the run in hand
);
CREATE INDEX logs_run ON logs (run, number);
