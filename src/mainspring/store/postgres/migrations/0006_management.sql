-- Where runs come from when they are not new, and how far they have come.
ALTER TABLE runs ADD COLUMN forked_from text COLLATE "C";            -- the run it was forked from
ALTER TABLE runs ADD COLUMN forked_at text COLLATE "C";              -- the first operation that was not copied; NULL: from the beginning
ALTER TABLE runs ADD COLUMN generation bigint NOT NULL DEFAULT 0;    -- how often it began anew with continue_as
ALTER TABLE runs ADD COLUMN stopping text;                           -- why it was stopped; it has yet to undo what it did
CREATE INDEX runs_forked ON runs (forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX runs_failed ON runs (uid) WHERE state IN ('failed', 'cancelled');
CREATE INDEX runs_of_schedule ON runs (schedule, uid) WHERE schedule IS NOT NULL;
CREATE INDEX runs_stranded ON runs (uid) WHERE stranded IS NOT NULL;
CREATE INDEX runs_attributes ON runs USING gin (attributes jsonb_path_ops) WHERE attributes <> '{}';
CREATE INDEX steps_undo ON steps (run) WHERE kind = 'undo';

-- What was logged inside runs, where that is kept.
CREATE TABLE logs (
  number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- in the order in which they were stored
  run      text COLLATE "C" NOT NULL,
  at       bigint NOT NULL,
  level    text NOT NULL,
  logger   text NOT NULL,
  message  text NOT NULL,
  step     text,                                             -- the name of the step it was logged in
  position text COLLATE "C",                                 -- the operation it was logged in
  attempt  bigint,                                           -- of that step
  worker   text COLLATE "C"                                  -- the worker that had the run in hand
);
CREATE INDEX logs_run ON logs (run, number);
