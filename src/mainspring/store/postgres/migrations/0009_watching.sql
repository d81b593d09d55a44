-- What operators did: one row per action, there before the action is carried out.
CREATE TABLE actions (
  id      text COLLATE "C" NOT NULL PRIMARY KEY,  -- sorts by time
  at      bigint NOT NULL,
  who     text NOT NULL,                          -- as the dashboard or the command line knows them
  action  text NOT NULL,                          -- runs.cancel, schedules.pause …
  subject json NOT NULL,                          -- JSON list: the ids that it was about
  reason  text,                                   -- why, in their words
  details json NOT NULL,                          -- JSON object: the rest of what was asked for
  outcome json                                    -- JSON: what came of it; NULL: nobody lived to write it down
);

-- How many runs ended, how long they took and how late they began, by minute; minute 0 is all time.
CREATE TABLE activity (
  minute   bigint NOT NULL,                       -- when it begins, in microseconds
  workflow text COLLATE "C" NOT NULL,
  measure  text NOT NULL CHECK (measure IN ('duration', 'lateness')),
  state    text NOT NULL,                         -- how they ended
  bucket   bigint NOT NULL,                       -- which class of durations, from the shortest
  count    bigint NOT NULL,
  micros   bigint NOT NULL,                       -- all of them together
  PRIMARY KEY (minute, workflow, measure, state, bucket)
);

-- What went wrong is rare, and is what people look for.
CREATE INDEX ticks_unhappy ON ticks (schedule, nominal) WHERE outcome NOT IN ('fired', 'pending', 'buffered');
CREATE INDEX ticks_lost ON ticks (nominal) WHERE outcome IN ('missed', 'skipped_overlap', 'dropped', 'start_failed');
