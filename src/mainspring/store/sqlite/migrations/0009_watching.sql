-- What operators did: one row per action, there before the action is carried out.
CREATE TABLE actions (
  id      TEXT NOT NULL PRIMARY KEY,        -- sorts by time
  at      INTEGER NOT NULL,
  who     TEXT NOT NULL,                    -- as the dashboard or the command line knows them
  action  TEXT NOT NULL,                    -- runs.cancel, schedules.pause …
  subject TEXT NOT NULL,                    -- JSON list: the ids that it was about
  reason  TEXT,                             -- why, in their words
  details TEXT NOT NULL,                    -- JSON object: the rest of what was asked for
  outcome TEXT                              -- JSON: what came of it; NULL: nobody lived to write it down
) WITHOUT ROWID;

-- How many runs ended, how long they took and how late they began, by minute; minute 0 is all time.
CREATE TABLE activity (
  minute   INTEGER NOT NULL,                -- when it begins, in microseconds
  workflow TEXT NOT NULL,
  measure  TEXT NOT NULL CHECK (measure IN ('duration', 'lateness')),
  state    TEXT NOT NULL,                   -- how they ended
  bucket   INTEGER NOT NULL,                -- which class of durations, from the shortest
  count    INTEGER NOT NULL,
  micros   INTEGER NOT NULL,                -- all of them together
  PRIMARY KEY (minute, workflow, measure, state, bucket)
) WITHOUT ROWID;

-- What went wrong is rare, and is what people look for.
CREATE INDEX ticks_unhappy ON ticks (schedule, nominal) WHERE outcome NOT IN ('fired', 'pending', 'buffered');
CREATE INDEX ticks_lost ON ticks (nominal) WHERE outcome IN ('missed', 'skipped_overlap', 'dropped', 'start_failed');
